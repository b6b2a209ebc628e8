"""Where rows go: one module or package per store, alike on purpose."""
