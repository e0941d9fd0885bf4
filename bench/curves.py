#!/usr/bin/env python3
"""Compares the losses that curves.c and peers printed: curves.py FILE..., libdlc's first. Each file has a loss for each step, and at its
end that of the text that is not learnt. Status 1: they differ."""
import os
import sys

FIRST, STEP_LIMIT, LAST_LIMIT = 100, 1e-3, 1e-2
ROWS, COLUMNS = 16, 76


def plot(curves):
    """Each curve with the first letter of its name; * where several meet."""
    lowest, highest = min(map(min, curves.values())), max(map(max, curves.values()))
    drawn = [[" "] * COLUMNS for _ in range(ROWS)]
    for name, losses in curves.items():
        for column in range(COLUMNS):
            loss = losses[column * (len(losses) - 1) // (COLUMNS - 1)]
            row = drawn[round((highest - loss) / (highest - lowest) * (ROWS - 1))]
            row[column] = name[0] if row[column] == " " else "*"
    for i, row in enumerate(drawn):
        print(f"{highest - (highest - lowest) * i / (ROWS - 1):8.3f} |{''.join(row)}")
    print(" " * 9 + "+" + "-" * COLUMNS)


def main(paths):
    losses = {os.path.basename(path): [float(line) for line in open(path)] for path in paths}
    ours, good = losses["dlc"], True
    plot({name: each[:-1] for name, each in losses.items()})
    first = min(FIRST, len(ours) - 1)
    print(f"{'':12} {'step 1':>10} {f'step {first}':>10} {f'step {len(ours) - 1}':>10} {'not learnt':>10}"
          f"   difference: steps 1 to {first}, at most {STEP_LIMIT:g}; not learnt, at most {LAST_LIMIT:g}")
    for name, each in losses.items():
        print(f"{name:12} {each[0]:10.5f} {each[first - 1]:10.5f} {each[-2]:10.5f} {each[-1]:10.5f}", end="")
        if each is ours:
            print()
            continue
        steps = max(abs(a - b) / abs(b) for a, b in zip(ours[:first], each))
        last = abs(ours[-1] - each[-1]) / each[-1]
        fits = len(each) == len(ours) and steps <= STEP_LIMIT and last <= LAST_LIMIT
        print(f"   {steps:.2g}; {last:.2g}{'' if fits else '  MISSED'}")
        good &= fits
    if len(losses) == 1:
        print("peers: not measured")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
