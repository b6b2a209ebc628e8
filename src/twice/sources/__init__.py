"""Where rows come from: files in a folder, tables of a store."""
