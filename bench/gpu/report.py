"""Tables, figures and the summary line of what kernels and models measured."""
import json
import math
import os
import statistics

# name, element type, which cases, required, stretch: ratios to PyTorch (its time over ours), or shares of the copy bandwidth
FIGURES = [
    ("maps, reductions, softmax, layer norm of 64 MiB and more: share of copy bandwidth", None, "share", 0.85, 0.95),
    ("f32 contraction, ratio to cuBLAS without tf32", "f32", "contraction", 0.75, 0.9),
    ("bf16 contraction, ratio to cuBLASLt: cubes 1024-8192, transformer shapes", "bf16", "contraction", 0.5, 0.65),
    ("bf16 attention, ratio to PyTorch's best", "bf16", "attention", 0.4, 0.55),
    ("bf16 convolution, ratio to cuDNN", "bf16", "convolution", 0.4, 0.6),
]
ROWS = ("softmax", "log_softmax", "logsumexp", "reduce_sum", "reduce_max", "layer_norm", "rms_norm", "mean_var", "argmax")
TRANSFORMERS = ("bert", "bert-large", "gpt2", "decoder", "vocabulary", "vit", "llama", "transformer")


def median_of(row, name):
    times = (row.get("times") or {}).get(name)
    return times["median"] if times else None


def best_peer(row):
    """Name and median of the fastest contestant beside us."""
    found = [(t["median"], name) for name, t in (row.get("times") or {}).items() if name != "dlc" and t]
    return min(found)[::-1] if found else (None, None)


def share_of_copy(row, bandwidth):
    ours = median_of(row, "dlc")
    return row["bytes"] / ours / bandwidth if ours and bandwidth else None


def mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def counts(figure, row):
    _, dtype, what, _, _ = figure
    if dtype and row["dtype"] != dtype:
        return False
    if what == "share":
        return row["bytes"] >= 64 << 20 and (row["kind"] == "map" or (row["kind"] == "row" and row["name"] in ROWS))
    if row["kind"] != what:
        return False
    if what == "contraction" and dtype == "bf16":
        sizes = [int(w.split("=")[1]) for w in row["case"].split() if w[:2] in ("m=", "n=", "k=")]
        return row["name"] in TRANSFORMERS or (row["name"] == "cube" and min(sizes) >= 1024)
    return True


def verdict(value, required, stretch, more=True):
    if value is None:
        return "not measured"
    better = (lambda a, b: a >= b) if more else (lambda a, b: a <= b)
    return "stretch" if better(value, stretch) else "kept" if better(value, required) else "MISSED"


def figure(name, value, required, stretch, more=True, unit="", least=None):
    text = "not measured" if value is None else "%.3g%s" % (value, unit)
    if least is not None:
        text += " (least %.3g)" % least
    return {"figure": name, "value": value, "least": least, "required": required, "stretch": stretch,
            "verdict": verdict(value, required, stretch, more), "text": text}


def kernel_figures(rows, facts, launch):
    found = []
    for f in FIGURES:
        values = []
        for row in rows:
            if not counts(f, row):
                continue
            if f[2] == "share":
                value = share_of_copy(row, facts.get("copy_bandwidth"))
            else:
                ours, (_, peer) = median_of(row, "dlc"), best_peer(row)
                value = peer / ours if ours and peer else None
            if value:
                values.append(value)
        found.append(figure(f[0] + " (%d cases)" % len(values), mean(values) if values else None, f[3], f[4],
                            least=min(values) if values else None))
    each = [r["compile_ms"] / r["kernels"] for r in rows if r.get("kernels")] if facts.get("copy_bandwidth") else []
    found.append(figure("NVRTC compile per kernel, median", statistics.median(each) if each else None, 60, 40, False, " ms"))
    beyond = 1e6 * (launch["wall"] - launch["device"]) if launch.get("device") else None
    found.append(figure("launch overhead of a plan beyond kernel time", beyond, 15, 8, False, " us"))
    return found


def write(out, name, lines, figures, summary):
    with open(os.path.join(out, name + ".txt"), "w") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(out, name + ".json"), "w") as file:
        json.dump({"figures": figures, "summary": summary}, file, indent=1)
    print("\n".join(lines))


def figure_lines(figures):
    return [""] + ["%-100s %-28s required %-6g stretch %-6g %s" % (f["figure"], f["text"], f["required"], f["stretch"], f["verdict"])
                   for f in figures]


def number(value, scale, digits):
    return "-" if value is None else "%.*f" % (digits, value * scale)


def kernels(all_rows, left, out):
    facts, launch = all_rows.get("facts", {}), all_rows.get("launch", {})
    rows = [r for k, r in all_rows.items() if k not in ("facts", "launch")]
    lines = [json.dumps({k: v for k, v in facts.items() if k != "key"}), "",
             "%-88s %5s %10s %10s %-20s %6s %7s %9s %8s" % ("case", "type", "dlc us", "best us", "peer", "ratio", "copy %", "TFLOP/s", "ms/kernel")]
    for r in rows:
        if "failed" in r:
            lines.append("%-88s %5s FAILED: %s" % (r["case"][:88], r["dtype"], r["failed"]))
            continue
        ours, (peer, best) = median_of(r, "dlc"), best_peer(r)
        lines.append("%-88s %5s %10s %10s %-20s %6s %7s %9s %8s%s%s" % (
            r["case"][:88], r["dtype"], number(ours, 1e6, 2), number(best, 1e6, 2), peer or "-", number(best / ours if best and ours else None, 1, 2),
            number(share_of_copy(r, facts.get("copy_bandwidth")), 100, 1), number(r["flops"] / ours if ours and r["flops"] else None, 1e-12, 2),
            number(r["compile_ms"] / r["kernels"] if r["kernels"] and ours else None, 1, 1), "  WRONG %.3g" % r["difference"] if r.get("wrong") else "",
            "  INTERPRETED" if r["interpreted"] else ""))
    figures = kernel_figures([r for r in rows if "failed" not in r], facts, launch)
    lines += figure_lines(figures)
    failed, wrong = sum("failed" in r for r in rows), sum(bool(r.get("wrong")) for r in rows)
    measured = sum(median_of(r, "dlc") is not None for r in rows)
    compared = sum("difference" in r for r in rows)
    missed = sum(f["verdict"] == "MISSED" for f in figures)
    summary = "kernels: %d run, %d compared, %d measured, %d failed, %d wrong, %d figures missed, %d cases left for another run" % (
        len(rows) - failed, compared, measured, failed, wrong, missed, left)
    write(out, "kernels", lines, figures, summary)
    print(summary)
    return 1 if failed or wrong else 0


def models(all_rows, left, out):
    facts, first = all_rows.get("facts", {}), all_rows.get("first call", {})
    rows = [r for k, r in all_rows.items() if k not in ("facts", "first call")]
    lines = [json.dumps({k: v for k, v in facts.items() if k != "key"}), "",
             "%-16s %5s %6s %6s %10s %10s %10s %8s %8s %10s" % ("model", "type", "batch", "tokens", "dlc ms", "eager ms", "compile ms", "/eager",
                                                              "/compile", "difference")]
    for r in rows:
        if "failed" in r:
            lines.append("%-40s FAILED: %s" % (r["model"], r["failed"]))
            continue
        ours, eager, compiled = (median_of(r, n) for n in ("dlc", "eager", "compile"))
        lines.append("%-16s %5s %6d %6d %10s %10s %10s %8s %8s %10.2g%s%s" % (
            r["model"], r["dtype"], r["batch"], r["tokens"], number(ours, 1e3, 3), number(eager, 1e3, 3), number(compiled, 1e3, 3),
            number(eager / ours if eager and ours else None, 1, 2), number(compiled / ours if compiled and ours else None, 1, 2), r["difference"],
            "  WRONG" if r.get("wrong") else "", "  INTERPRETED" if r.get("interpreted") else ""))
    seconds = 1e-3 * (first["compile_ms"] + first["first_ms"]) if "first_ms" in first else None
    figures = [figure("first call of BERT-base, in a process of its own", seconds, 3, 1, False, " s")]
    lines += figure_lines(figures)
    if "failed" in first:
        lines.append("first call FAILED: " + first["failed"])
    failed, wrong = sum("failed" in r for r in rows) + ("failed" in first), sum(bool(r.get("wrong")) for r in rows)
    measured = sum(median_of(r, "dlc") is not None for r in rows)
    summary = "models: %d compared with PyTorch, %d measured, %d failed, %d wrong, %d left for another run" % (
        sum("difference" in r for r in rows), measured, failed, wrong, left)
    write(out, "models", lines, figures, summary)
    print(summary)
    return 1 if failed or wrong else 0
