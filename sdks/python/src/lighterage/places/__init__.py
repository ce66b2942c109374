"""Where calls may run, beside here: nodes, and what this process knows of them.

config    which nodes there are, and with which token
wire      HTTP to them, without copying what is large
node      one of them: who it is, what it has, calls of it
runtime   all of them, with what was measured and the threads
session   what a program may ask of all that
"""
