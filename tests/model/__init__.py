"""Does the protocol itself keep its promises, whatever order things happen in?

A small world in which every interleaving is tried: two runners, one or two slots, one table, one ledger,
and faults that may strike between any two steps. The steps bear the names of the fault points of the code.

    state      what there is: table, ledger, inputs, runners, publishes under way
    rules      what the protocol asks for, one short method each; a wrong protocol changes one of them
    planning   publish, skip or refuse, and from which state
    step       one step, under the name of its fault point
    runners    what a runner does next
    store      what the store does with what it was sent
    faults     what befalls them, and what people do
    truth      what a clean run would show
    promises   what must be true of every state and every step
    sizes      how large the worlds are
    explorer   all states, nearest first, so that the first counterexample is the shortest
    wrong      protocols that must be caught
"""
