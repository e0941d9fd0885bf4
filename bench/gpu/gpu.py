"""`bench/gpu.sh kernels|models`: libdlc on a GPU beside PyTorch, in one process, by turns. What OUT has is not measured again. Results are
JSON lines, from which tables and figures are made at the end. Without a GPU (the tests' fake driver) everything small is run and
nothing is timed: figures then read `not measured`."""
import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import report
from dlc import Context, Error, HostTensor, Library, TorchTensor
from measure import Bench, torch

HERE = os.path.dirname(os.path.abspath(__file__))


# ---- results so far ------------------------------------------------------------------------------------------------------------

class Results:
    def __init__(self, folder, name):
        self.path = os.path.join(folder, name + ".jsonl")
        self.rows = {}
        if os.path.exists(self.path):
            for line in open(self.path):
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # a line that an earlier run could not finish
                self.rows[row["key"]] = row

    def add(self, key, row):
        row["key"] = key
        self.rows[key] = row
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


# ---- kernels ---------------------------------------------------------------------------------------------------------------------

def read_cases(build, files, dtype, text):
    """The cases of the files with that element type, as `bench --graphs` describes them."""
    lines = []
    for path in files:
        for line in open(path):
            line = " ".join(line.split())
            if not line or line[0] == "#" or (text and text not in line) or ("dtype=" in line and dtype != "f32"):
                continue
            if dtype == "f32" or not any(word in line for word in ("cast f32", "dequantise")):
                lines.append(line if dtype == "f32" else line + " dtype=" + dtype)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        found = subprocess.run([os.path.join(build, "bench/bench"), "--graphs", file.name], stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def size_of(operand):
    bits = {"bool": 8, "i8": 8, "u8": 8, "i32": 32, "f32": 32, "i64": 64, "f64": 64, "f16": 16, "bf16": 16}
    return math.prod(operand["dims"]) * bits[operand["dtype"]] // 8


def torch_type(name):
    return {"bool": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16,
            "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[name]


def make_input(bench, operand):
    low, high, dims = operand["low"], operand["high"], operand["dims"]
    if torch is None:
        return None
    x = torch.rand(dims, device=bench.device) * (high - low) + low
    if operand["dtype"] in ("f32", "f64", "f16", "bf16"):
        return x.to(torch_type(operand["dtype"]))
    return x.floor().clamp(low, high - 1).to(torch_type(operand["dtype"]))


def make_set(bench, case):
    """Inputs and outputs for one call: tensors of PyTorch, or zeros on the host."""
    if torch is None:
        return [HostTensor(o["dtype"], o["dims"]) for o in case["inputs"]], [HostTensor(o["dtype"], o["dims"]) for o in case["outputs"]]
    inputs = [TorchTensor(make_input(bench, o)) for o in case["inputs"]]
    outputs = [TorchTensor(torch.empty(o["dims"], dtype=torch_type(o["dtype"]), device=bench.device)) for o in case["outputs"]]
    return inputs, outputs


def peer_contestants(bench, case, sets):
    """By name the functions of PyTorch, and the result of one of them: its ways that take the case."""
    import peers
    found, expected = {}, None
    for name, way in peers.ways(case["kind"], case["name"], case["case"]).items():
        try:
            result = way(*[t.tensor for t in sets[0][0]])
        except RuntimeError:
            continue  # a backend that refuses the case
        expected = result if expected is None else expected
        found[name] = [lambda s=s, way=way: way(*[t.tensor for t in s[0]]) for s in sets]
    return found, expected


def compare(dtype, outputs, expected):
    import peers
    expected = expected if isinstance(expected, tuple) else (expected,)
    apart = [peers.agree(o.tensor, e, dtype) for o, e in zip(outputs, expected)]
    apart = [a for a in apart if a is not None]
    return max(apart) if apart else 0.0


def run_case(bench, case, dtype):
    moved = sum(map(size_of, case["inputs"])) + sum(map(size_of, case["outputs"]))
    # As many memories as the L2 holds twice, within reason.
    count = min(64, max(1, math.ceil(2 * bench.l2 / max(moved, 1)))) if bench.gpu else 1
    sets = [make_set(bench, case) for _ in range(count)]
    if bench.gpu:
        torch.cuda.synchronize()
    before = bench.context.statistics()
    program = bench.context.compile(bench.context.parse(case["graph"]))
    calls = [program.call(i, o, bench.handle) for i, o in sets]
    after = bench.context.statistics()
    row = {"case": case["case"], "kind": case["kind"], "name": case["name"], "dtype": dtype, "flops": case["flops"],
           "bytes": case["bytes"] or moved, "memories": count, "kernels": after.kernel_builds - before.kernel_builds,
           "compile_ms": 1e-6 * (after.compile_ns - before.compile_ns),
           "interpreted": after.interpreted_regions - before.interpreted_regions}
    try:
        if row["interpreted"] and bench.gpu:
            raise RuntimeError("%d regions run by plain loops" % row["interpreted"])  # by one thread: for hours
        settle = lambda: [call.settle() for call in calls]
        calls[0].run()
        settle()
        contestants = {"dlc": [call.run for call in calls]}
        if torch is not None:
            others, expected = peer_contestants(bench, case, sets)
            if others:
                row["difference"] = compare(dtype, sets[0][1], expected)
                row["wrong"] = not row["difference"] <= (1e-3 if dtype == "f32" else 2e-2)
            contestants.update(others)
        row["times"] = bench.contest(contestants, settle=settle)
    finally:
        for call in calls:
            call.close()
        program.close()
    return row


def kernels(bench, options):
    results = Results(options.out, "kernels")
    results.add("facts", bench.describe())
    files = options.files or [os.path.join(HERE, "cases.txt"), os.path.join(HERE, "../shapes.txt")]
    left = 0
    for dtype in ("f32", "bf16"):
        for case in read_cases(options.build, files, dtype, options.filter):
            key = dtype + " " + case["case"]
            work = max(case["flops"], sum(map(size_of, case["inputs"])), sum(map(size_of, case["outputs"])))
            if key in results.rows or (not bench.gpu and work > options.work):
                continue
            if bench.out_of_time():
                left += 1
                continue
            try:
                row = run_case(bench, case, dtype)
            except (Error, RuntimeError) as error:
                row = {"case": case["case"], "kind": case["kind"], "dtype": dtype, "failed": str(error)[:300]}
            results.add(key, row)
            if bench.gpu:
                torch.cuda.empty_cache()
    if "launch" not in results.rows and not bench.out_of_time():
        try:
            results.add("launch", launch_overhead(bench))
        except Exception as error:  # the profiler's, too: the figure is then not measured
            print("launch overhead: %s" % str(error)[:300])
    return report.kernels(results.rows, left, options.out)


def launch_overhead(bench):
    """A plan of small kernels in a row: time of a run as the host sees it beyond the time that the device works."""
    lines = ["graph {", "  input x: f32[64, 64]"]
    for i in range(16):  # no two of them fuse
        lines.append("  t%d = transpose(%s, permutation=[1, 0])" % (i, "x" if i == 0 else "s%d" % (i - 1)))
        lines.append("  s%d = softmax(t%d)" % (i, i))
    lines += ['  output "y" = s15', "}"]
    case = {"inputs": [{"dtype": "f32", "dims": [64, 64], "low": -1, "high": 1}], "outputs": [{"dtype": "f32", "dims": [64, 64]}]}
    inputs, outputs = make_set(bench, case)
    program = bench.context.compile(bench.context.parse("\n".join(lines) + "\n"))
    call = program.call(inputs, outputs, bench.handle)
    row = {"plan": "16 times transpose and softmax of 64 x 64"}

    def run():
        call.run()
        call.settle()

    run()
    if bench.gpu:
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
        torch.cuda.synchronize()
        wall = []
        for _ in range(500):
            start = time.perf_counter()
            run()
            wall.append(time.perf_counter() - start)
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            for _ in range(20):
                run()
            torch.cuda.synchronize()
        events = [e for e in prof.events() if e.device_type == DeviceType.CUDA and not e.name.startswith(("Memcpy", "Memset"))]
        device = sum(e.time_range.elapsed_us() for e in events) * 1e-6 / 20
        row.update(wall=sorted(wall)[250], device=device or None, launches=len(events) / 20)
    call.close()
    program.close()
    return row


# ---- models ----------------------------------------------------------------------------------------------------------------------

class ModelTensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 64), ("rank", ctypes.c_int), ("shape", ctypes.c_int64 * 4), ("data", ctypes.c_void_p)]


class Models:
    """bench/models as a shared object: builds graphs, and shows the weights."""

    def __init__(self, build):
        self.lib = ctypes.CDLL(os.path.join(build, "bench/models/libmodels.so"))
        self.lib.model_open.restype = self.lib.model_graph.restype = ctypes.c_void_p
        self.lib.model_graph.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self.lib.model_weight.restype = ctypes.POINTER(ModelTensor)
        self.lib.model_weight.argtypes = [ctypes.c_void_p, ctypes.c_int]
        for name in ("model_weight_count", "model_close"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]

    def open(self, name):
        return self.lib.model_open(name.encode())

    def graph(self, model, context, dtype):
        code = {"f16": 9, "bf16": 10, "f32": 11}[dtype]  # dlc_dtype, types.h
        return ctypes.c_void_p(self.lib.model_graph(model, context.handle, code))

    def weights(self, model, device, dtype):
        found = {}
        for i in range(self.lib.model_weight_count(model)):
            w = self.lib.model_weight(model, i).contents
            shape = list(w.shape)[:w.rank]
            raw = (ctypes.c_char * (4 * math.prod(shape))).from_address(w.data)
            found[w.name.decode()] = torch.frombuffer(raw, dtype=torch.float32).reshape(shape).to(device, torch_type(dtype))
        return found


COMPILE_SECONDS = 150  # torch.compile of one of them, at most
# name, batch, tokens (0: images), of full size
MODELS = [("resnet-small", 3, 0, False), ("bert-small", 3, 17, False), ("resnet50", 1, 0, True), ("resnet50", 32, 0, True),
          ("bert-base", 1, 128, True), ("bert-base", 16, 384, True)]


def run_model(bench, models, name, batch, tokens, dtype, compiled):
    import networks
    model = models.open(name)
    before = bench.context.statistics()
    program = bench.context.compile(models.graph(model, bench.context, dtype))
    network = networks.network(name, models.weights(model, bench.device, dtype), torch_type(dtype))
    sets = [networks.inputs(name, batch, tokens, bench.device, seed) for seed in range(4)]
    with torch.inference_mode():
        expected = network(*sets[0])
    results = [torch.empty(expected.shape, dtype=torch.float32, device=bench.device) for _ in sets]
    calls = [program.call([TorchTensor(t) for t in s], [TorchTensor(r)], bench.handle) for s, r in zip(sets, results)]
    after = bench.context.statistics()
    if bench.gpu:
        torch.cuda.synchronize()
    try:
        settle = lambda: [call.settle() for call in calls]
        calls[0].run()
        settle()
        apart = float((results[0].double() - expected.double()).abs().max() / expected.double().abs().max())
        row = {"model": name, "batch": batch, "tokens": tokens, "dtype": dtype, "difference": apart,
               "wrong": not apart <= (1e-4 if dtype == "f32" else 5e-2), "kernels": after.kernel_builds - before.kernel_builds,
               "bind_ms": 1e-6 * (after.compile_ns - before.compile_ns),
               "interpreted": after.interpreted_regions - before.interpreted_regions}
        contestants = {"dlc": [call.run for call in calls]}

        def of(function):
            def run(s):
                with torch.inference_mode():
                    function(*s)
            return [lambda s=s: run(s) for s in sets]

        if bench.gpu:
            contestants["eager"] = of(network)
            if compiled:
                torch._dynamo.reset()  # compilations of other weights count as none of these
                contestants["compile"] = of(torch.compile(network))
                try:
                    contestants["compile"][0]()
                except Exception as error:  # anything that its compilers can raise
                    del contestants["compile"]
                    row["compile_failed"] = str(error)[:300]
        row["times"] = bench.contest(contestants, sample_seconds=2e-2, settle=settle)
    finally:
        for call in calls:
            call.close()
        program.close()
        models.lib.model_close(model)
    return row


def digits(bench, options):
    """The network of examples/digits: its graph as it prints itself, its weights from its file, its images."""
    import networks
    root = os.path.join(HERE, "../..")
    program = os.path.join(options.build, "bin/digits")
    text = subprocess.run([program, "--graph", os.path.join(root, "examples/data")], stdout=subprocess.PIPE, text=True, check=True).stdout
    pixels, labels = networks.digits_images(os.path.join(root, "examples/data/digits.csv"))
    network = networks.digits(networks.digits_weights(os.path.join(root, "examples/data/digits_weights.safetensors")), bench.device)
    pixels, labels = pixels.to(bench.device)[-450:].contiguous(), labels.to(bench.device)[-450:]
    compiled = bench.context.compile(bench.context.parse(text))
    chosen = torch.empty(450, dtype=torch.int64, device=bench.device)
    scores = torch.empty((450, 10), device=bench.device)
    call = compiled.call([TorchTensor(pixels)], [TorchTensor(chosen), TorchTensor(scores)], bench.handle)
    try:
        call.run()
        call.settle()
        with torch.inference_mode():
            expected = network(pixels)
        apart = float((scores - expected).abs().max() / expected.abs().max())
        right = int((chosen == labels).sum())
        row = {"model": "digits", "batch": 450, "tokens": 0, "dtype": "f32", "difference": apart, "right": right,
               "wrong": not (apart <= 1e-4 and right >= 0.97 * 450)}

        def eager():
            with torch.inference_mode():
                network(pixels)

        contestants = {"dlc": [call.run], "eager": [eager]} if bench.gpu else {"dlc": [call.run]}
        row["times"] = bench.contest(contestants, settle=call.settle)
    finally:
        call.close()
        compiled.close()
    return row


def first_call(options):
    """In a process of its own: graph built, compiled, run once."""
    line = subprocess.run([os.path.join(options.build, "bench/models/models"), "bert-base", "--target", "cuda"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if line.returncode:
        return {"failed": line.stderr.strip()[:300]}
    return json.loads(line.stdout.splitlines()[0])


def models(bench, options):
    results = Results(options.out, "models")
    results.add("facts", bench.describe())
    left = 0
    if torch is None:
        print("PyTorch is not here: models are compared with nothing, and not measured")
        return report.models(results.rows, left, options.out)
    library = Models(options.build)
    wanted = [("digits", 0, lambda: digits(bench, options))]
    for name, batch, tokens, big in MODELS:
        for dtype in ("f32", "bf16"):
            if not big or bench.gpu or options.large:
                wanted.append(("%s batch=%d tokens=%d %s" % (name, batch, tokens, dtype), COMPILE_SECONDS if big and bench.gpu else 0,
                               lambda n=name, b=batch, t=tokens, d=dtype, big=big: run_model(bench, library, n, b, t, d, big)))
    if bench.gpu:
        wanted.insert(0, ("first call", 0, lambda: first_call(options)))
    for key, needed, run in wanted:
        if (options.filter and options.filter not in key) or key in results.rows:
            continue
        if bench.out_of_time(needed):
            left += 1
            continue
        try:
            row = run()
        except (Error, RuntimeError, subprocess.CalledProcessError) as error:
            row = {"model": key, "failed": str(error)[:300]}
        results.add(key, row)
    return report.models(results.rows, left, options.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("kernels", "models"))
    parser.add_argument("out")
    parser.add_argument("--build", required=True, help="folder of the build: libdlc.so, bench/bench, bench/models")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=480, help="starts nothing after that")
    parser.add_argument("--filter", default="")
    parser.add_argument("--work", type=float, default=3e5, help="without a GPU: operations or bytes of a case, at most; the "
                        "interpreter behind the fake driver has to do them")
    parser.add_argument("--large", action="store_true", help="models of full size without a GPU, too")
    parser.add_argument("files", nargs="*", help="cases; default: gpu/cases.txt and shapes.txt")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    library = Library(os.path.join(options.build, "libdlc.so"))
    context = Context(library, options.target, os.cpu_count() or 1)
    bench = Bench(library, context, options.seconds)
    try:
        return {"kernels": kernels, "models": models}[options.part](bench, options)
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(main())
