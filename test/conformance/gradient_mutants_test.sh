#!/bin/sh
# The lines that the mutants of the rules of differentiation change exist; whether the mutants are found, `make test-long` tests.
exec test/conformance/gradient_mutants --lines
