"""Checks the models of export_test --write: onnx.checker with full shape inference accepts each, and ONNX Runtime computes what the
interpreter did, within TOLERANCE of the greatest magnitude of a result. Models that ONNX Runtime has no kernels for are counted."""
import collections
import glob
import json
import os
import sys

import numpy
import onnx
import onnxruntime

TOLERANCE = {"float16": 2e-2, "float32": 2e-4, "float64": 1e-6}
# Rows whose results ONNX Runtime gives otherwise, with the reason.
EXPECTED = {
    "cast": "floats beyond the range of a wide integer type",
    "convolution_integer": "a zero point for each channel",
    "pow": "integers whose power wraps",
    "reduce_prod": "integers whose product wraps",
    "lstm": "a sequence of length 0",
    "rnn": "layout=1",
    "roi_align": "regions of any size without a number of samples",
    "ctc_loss": "a Scan over nothing",
}


def row_of(line):
    return line.split("(", 1)[0]


def difference(row, got, expected):
    """The greatest difference over the greatest magnitude; None: other shapes or types. Quantised results may be a step apart."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return None
    if got.dtype.itemsize == 1 and row.startswith("qlinear"):
        return 0.0 if (numpy.abs(got.astype("i4") - expected.astype("i4")) <= 1).all() else 1.0
    if got.dtype.kind in "biu":
        return 0.0 if (got == expected).all() else 1.0
    got, expected = got.astype("f8"), expected.astype("f8")
    same = (got == expected) | (numpy.isnan(got) & numpy.isnan(expected))
    if same.all():
        return 0.0
    if not (numpy.isfinite(got) & numpy.isfinite(expected))[~same].all():
        return 1.0
    scale = numpy.abs(expected[numpy.isfinite(expected)]).max()
    return float(numpy.abs(got - expected)[~same].max() / (scale or 1))


def pairs(array):
    """Complex numbers are pairs in the models."""
    return numpy.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def load(base, kind):
    count = len(glob.glob(glob.escape(base) + "." + kind + "[0-9]*.npy"))
    return [pairs(numpy.load(f"{base}.{kind}{i}.npy")) for i in range(count)]


def run(row, base):
    """None: agrees; else what does not, and whether it is only that ONNX Runtime lacks a kernel."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(base + ".onnx", options, providers=["CPUExecutionProvider"])
        feeds = {port.name: data for port, data in zip(session.get_inputs(), load(base, "in"))}
        results = session.run(None, feeds)
    except Exception as error:  # pylint: disable=broad-except
        text = str(error).replace("\n", " ")
        return text, any(words in text for words in ("NOT_IMPLEMENTED", "find an implementation", "type is not supported"))
    for i, (got, expected) in enumerate(zip(results, load(base, "out"))):
        own = difference(row, got, expected)
        if own is None:
            return f"result {i} is {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}", False
        if own > TOLERANCE.get(str(got.dtype), 0):
            return f"result {i} differs by {own:.3g}", False
    return None


def examine(row, base):
    """What is wrong with a model: (where, text), or None."""
    try:
        onnx.checker.check_model(base + ".onnx", full_check=True)
    except Exception as error:  # pylint: disable=broad-except
        return "checker", str(error).replace("\n", " ")
    outcome = run(row, base)
    return outcome and ("missing" if outcome[1] else "results", outcome[0])


def examine_apart(row, base):
    """The same in a process of its own, which a fault of ONNX Runtime may end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf8") as file:
            json.dump(examine(row, base), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf8") as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if status == 0 else ("results", f"ONNX Runtime ends with status {status}")


def main(folder):
    counts, failed, missing = collections.Counter(), [], collections.Counter()
    for path in sorted(glob.glob(os.path.join(folder, "*.onnx"))):
        base = path[:-5]
        with open(base + ".txt", encoding="utf8") as file:
            line = file.readline().strip()
        row = row_of(line)
        wrong = examine_apart(row, base)
        counts["models"] += 1
        if wrong is None:
            counts["agree"] += 1
        elif wrong[0] == "missing":
            counts["without a kernel"] += 1
            missing[row] += 1
        elif wrong[0] == "results" and row in EXPECTED:
            counts["expected to differ"] += 1
        else:
            failed.append(f"{line}: {wrong[0]}: {wrong[1][:300]}")
    for text in failed:
        print(text)
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    if missing:
        print("ONNX Runtime has no kernels for some samples of", " ".join(sorted(missing)))
    print("[  FAILED  ] 1 tests" if failed or not counts["agree"] else "[  PASSED  ] 1 tests")
    return bool(failed) or not counts["agree"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
