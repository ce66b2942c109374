"""One call, from where it begins to what is learnt from it.

Call ─▶ decide(Call) ─▶ Attempt, Attempt, … ─▶ Outcome ─▶ learn(Call, Outcome)

options, measure   what is said of a function, and what a call of it weighs
function, call     the function, with its code for nodes; a call of it
choose             asks where it should run
attempt, race      a call at one node; here and at one at once
several            calls that travel to a node as one
learn              what that says of places and function
run                all of it: here, there, or both; and wherever it still can when that fails
later              its future
"""
