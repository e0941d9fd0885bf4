#!/bin/sh
# The lines that the mutants of the rules change exist; whether the mutants are found, `make test-long` tests.
exec test/golden/mutants --lines
