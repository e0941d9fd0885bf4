"""Draws what `make bench` wrote: plots.py CASES.json DIRECTORY makes roofline.png and ratios.png there."""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
import matplotlib.ticker  # noqa: E402

COLOURS = {"contraction": "tab:blue", "convolution": "tab:orange", "attention": "tab:green", "network": "tab:red",
           "row": "tab:purple", "map": "tab:brown", "move": "tab:gray", "transform": "tab:olive"}


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def dtype_of(case):
    words = [word for word in case.split() if word.startswith("dtype=")]
    return words[0][6:] if words else "f32"


def arithmetic(axes, ours, roofs):
    """GFLOP/s over operations per byte, under the peaks and bandwidths."""
    bandwidths = {name: roof["read_gbps"] for name, roof in roofs.items() if "read_gbps" in roof}
    peaks = {"f32": roofs.get("fma512", roofs.get("fma256", roofs.get("fma128")))["gflops"]}
    peaks.update({name: roofs[name]["gflops"] for name in ("f64", "bf16", "u8") if name in roofs})
    low, high, top = 1 / 8, 4096, max(peaks.values())
    bottom = min([c["gflops"] for c in ours if c["flops"] > 0] + [4]) / 1.5
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top * 1.6), title="arithmetic",
             xlabel="operations per byte that must move", ylabel="GFLOP/s (GOP/s of u8)")
    for name, gbps in bandwidths.items():
        axes.plot([low, top / gbps], [low * gbps, top], color="0.6", linewidth=1, zorder=1)
    heights = [0.75, 0.34, 0.62, 0.62]
    for at, (name, gbps) in enumerate(bandwidths.items()):
        y, side = top * heights[at % 4], -1 if at < 2 else 1
        axes.annotate(f"{name} {gbps:.0f} GB/s", (y / gbps, y), xytext=(4 * side, 0), textcoords="offset points",
                      ha="right" if side < 0 else "left", va="center", fontsize=8, color="0.3",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}, zorder=2)
    for name, peak in peaks.items():
        axes.axhline(peak, color="0.3", linewidth=1, linestyle="-" if name == "f32" else ":", zorder=1)
        axes.annotate(f"{name} {peak:.0f}", (high, peak), textcoords="offset points", xytext=(-4, 4), ha="right",
                      fontsize=8)
    markers = {"f32": "o", "f64": "s", "bf16": "^", "u8": "v", "f16": "D"}
    for kind, colour in COLOURS.items():
        for dtype, marker in markers.items():
            chosen = [c for c in ours if c["kind"] == kind and dtype_of(c["case"]) == dtype and c["flops"] > 0]
            if chosen:
                axes.scatter([c["flops"] / c["bytes"] for c in chosen], [c["gflops"] for c in chosen], s=16,
                             color=colour, marker=marker, alpha=0.7, linewidths=0, zorder=2,
                             label=kind if dtype == "f32" else f"{kind} {dtype}")
    axes.legend(fontsize=8, loc="lower right", ncol=2)


def bandwidth(axes, ours, roofs):
    """GB/s over the bytes that must move, of what does no arithmetic to speak of, with what copying reaches."""
    left = 1e3
    for name, roof in roofs.items():
        if "copy_gbps" not in roof:
            continue
        right = roof["size"] or 4e9
        axes.plot([left, right], [roof["copy_gbps"]] * 2, color="0.5", linewidth=1.5, zorder=1)
        axes.annotate(f"copy, {name} {roof['copy_gbps']:.0f}", (right, roof["copy_gbps"]), textcoords="offset points",
                      xytext=(0, 3), ha="right", fontsize=8, color="0.3")
        left = right
    for kind, colour in COLOURS.items():
        chosen = [c for c in ours if c["kind"] == kind and c["flops"] == 0]
        if chosen:
            axes.scatter([c["bytes"] for c in chosen], [c["gbps"] for c in chosen], s=18, color=colour, alpha=0.7,
                         linewidths=0, zorder=2, label=kind)
    slowest = min([c["gbps"] for c in ours if c["flops"] == 0] + [20])
    axes.set(xscale="log", yscale="log", xlim=(1e3, 4e9), ylim=(slowest / 1.5, None), xlabel="bytes that must move", ylabel="GB/s", title="memory")
    axes.legend(fontsize=8, loc="lower left")


def roofline(lines, path):
    roofs = {line["roof"]: line for line in lines if "roof" in line and line["threads"] == 1}
    ours = [line for line in lines if line.get("contestant") == "dlc" and line["threads"] == 1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 6.5), gridspec_kw={"width_ratios": [3, 2]})
    arithmetic(left, ours, roofs)
    bandwidth(right, ours, roofs)
    for axes in (left, right):
        axes.grid(which="major", color="0.92")
        axes.set_axisbelow(True)
    right.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    machine = next((line["machine"] for line in lines if "machine" in line), "")
    figure.suptitle(f"libdlc on one thread of {machine}")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def ratios(lines, path):
    """Each set a row: every case's ratio, their geometric mean, what is required of a case and of the mean."""
    sets = [line for line in lines if "set" in line and line["measured"]]
    figure, axes = plt.subplots(figsize=(13, 1.6 + 0.42 * len(sets)))
    names = []
    for row, one in enumerate(reversed(sets)):
        values = sorted(line["ratio"] for line in lines if line.get("of") == one["set"]
                        and line["threads"] == one["threads"])
        heights = [row + 0.3 * (2 * ((i * 0.618034) % 1) - 1) for i in range(len(values))]
        bar = one["required_least"]
        colours = ["tab:red" if value < bar else "tab:blue" for value in values]
        axes.scatter(values, heights, s=12, color=colours, alpha=0.6, linewidths=0, zorder=3)
        if bar:
            axes.plot([bar, bar], [row - 0.4, row + 0.4], color="tab:red", linewidth=1.5, zorder=2)
            axes.plot([one["required_mean"]] * 2, [row - 0.4, row + 0.4], color="0.4", linewidth=1.5,
                      linestyle=":", zorder=2)
        axes.scatter([one["mean"]], [row], s=70, marker="D", color="black", zorder=4)
        threads = "" if one["threads"] == 1 else f", {one['threads']} threads"
        names.append(f"{one['set']} vs {one['against']}{threads} ({one['measured']})")
    axes.axvline(1, color="black", linewidth=0.8, zorder=1)
    ticks = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 20]
    largest = max([line["ratio"] for line in lines if "of" in line] + [2])
    axes.set_xscale("log")
    axes.set_xticks([tick for tick in ticks if tick < largest * 1.3], minor=False)
    axes.set_xticklabels([f"{tick:g}" for tick in ticks if tick < largest * 1.3])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names, fontsize=9)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", color="0.92", zorder=0)
    axes.set_xlabel("their time over ours: right of 1 libdlc is faster. Diamond: geometric mean; red line: required of each "
                    "case; dotted: of the mean")
    axes.set_title("libdlc and its peers")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(cases, directory):
    lines = read(cases)
    if not any("set" in line for line in lines) or not any(line.get("contestant") == "dlc" for line in lines):
        sys.exit(f"{cases} holds no whole run of `make bench`")
    for draw, name in ((roofline, "roofline.png"), (ratios, "ratios.png")):
        draw(lines, f"{directory}/{name}")
        print(f"{directory}/{name}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
