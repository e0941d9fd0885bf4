"""What PyTorch does for a case of the benchmark: a function of the case's inputs, in their order, and whether its result is to be compared
element by element. Written from the meaning of the cases (bench/cases.c), not from their graphs."""
import math
import re

import torch
import torch.nn.functional as F


def parameters(case):
    """key=value and flags behind the kind and the name; numbers as lists."""
    found = {}
    words = case.split()
    for i, word in enumerate(words):
        key, equals, value = word.partition("=")
        if equals:
            found[key] = value
        elif i >= 2 and any("=" in w for w in words[:i]):
            found[word] = ""
    return found


def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def activation(p):
    return {"gelu": F.gelu, "relu": F.relu}.get(p.get("act"), lambda x: x)


def contraction(name, p):
    act = activation(p)
    return (lambda x, w, b: act(torch.matmul(x, w) + b)) if "bias" in p else (lambda x, w: act(torch.matmul(x, w)))


def convolution(name, p):
    stride, pad = int(p.get("stride", 1)), int(p.get("pad", 0))
    groups, dilation, act = int(p.get("groups", 1)), int(p.get("dilation", 1)), activation(p)
    if "transposed" in p:
        return lambda x, w: F.conv_transpose2d(x, w, stride=stride, padding=pad)

    def run(x, *rest):
        step = 2 if "bias" in p else 1
        for i in range(0, len(rest), step):
            x = F.conv2d(x, rest[i], stride=stride, padding=pad, groups=groups, dilation=dilation)
            x = act(x + rest[i + 1] if step == 2 else x)
        return x

    return run


def attention(name, p):
    causal, grouped = "causal" in p, "kv_heads" in p and p["kv_heads"] != p["heads"]
    if causal and p["queries"] != p["keys"]:
        return None  # PyTorch aligns the first query with the first key, libdlc the last with the last
    extra = {"enable_gqa": True} if grouped else {}
    return lambda q, k, v, mask=None: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, **extra)


def row(name, p):
    shape = numbers(p["shape"])
    axes = numbers(p["axis"]) if "axis" in p else [len(shape) - 1]
    axis = axes[0]
    return {
        "softmax": lambda x: torch.softmax(x, axis),
        "log_softmax": lambda x: torch.log_softmax(x, axis),
        "logsumexp": lambda x: torch.logsumexp(x, axes),
        "argmax": lambda x: torch.argmax(x, axis),
        "reduce_sum": lambda x: torch.sum(x, axes),
        "reduce_max": lambda x: torch.amax(x, axes),
        "cumsum": lambda x: torch.cumsum(x, axis),
        "layer_norm": lambda x, s, b: F.layer_norm(x, x.shape[-1:], s, b, 1e-5),
        "rms_norm": lambda x, s: F.rms_norm(x, x.shape[-1:], s, 1e-5),
        "mean_var": lambda x: (torch.mean(x, axes), torch.var(x, axes, correction=0)),
        "topk": lambda x: tuple(torch.topk(x, int(p["k"]), axis)),
        "group_norm": lambda x, s, b: F.group_norm(x, int(p["groups"]), s.flatten(), b.flatten(), 1e-5),
    }.get(name)


def muladds(x):
    for i in range(20):
        x = x * (0.9 + 0.01 * i) + (0.05 * i - 0.4)
    return x


def rope(x, c, s):
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def adam(p, g, m, v):
    m1, v1 = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
    return p - m1 / (torch.sqrt(v1) + 1e-8) * 1e-3, m1, v1


MAPS = {
    "gelu(a*x+b)": lambda x: F.gelu(x * 1.5 - 0.25),
    "add": lambda x, y: x + y,
    "silu*gate": lambda x, y: F.silu(x) * y,
    "bias+relu": lambda x, b: F.relu(x + b),
    "scale+shift+hswish": lambda x, s, b: F.hardswish(x * s + b),
    "20xmuladd": muladds,
    "rope": rope,
    "cast f32->bf16": lambda x: x.to(torch.bfloat16),
    "dequantise u8": lambda x, zero, scale: (x.float() - zero) * scale,
    "where+clip": lambda x: torch.where(x > 0.25, torch.clamp(x, 0, 0.75), -1.0),
    "adam": adam,
}


def move(name, p):
    shape = numbers(p["shape"])
    if name == "broadcast":
        return lambda x: x.expand(shape[len(shape) // 2:]).contiguous()
    return {
        "transpose": lambda x: x.permute(numbers(p["perm"])).contiguous(),
        "concat": lambda *x: torch.cat(x, int(p["axis"])),
        "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
        "gather": lambda table, ids: torch.index_select(table, 0, ids),
        "scatter_add": lambda table, ids, rows: torch.index_add(table, 0, ids, rows),
        "slice": lambda x: x[tuple(slice(None, None, int(p["step"])) for _ in shape)].contiguous(),
    }.get(name)


KINDS = {"contraction": contraction, "convolution": convolution, "attention": attention, "row": row,
         "map": lambda name, p: MAPS.get(name), "move": move}


def function(kind, name, case):
    """None: PyTorch has no such operation, or nobody wrote it down."""
    return KINDS[kind](name, parameters(case)) if kind in KINDS else None


def ways(kind, name, case):
    """Of a case, by name: attention by each of the backends, of which the fastest that takes it counts."""
    plain = function(kind, name, case)
    if not plain:
        return {}
    if kind != "attention":
        return {"torch": plain}
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def by(backend):
        def run(*inputs):
            with sdpa_kernel(backend):
                return plain(*inputs)
        return run

    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return {n.lower(): by(getattr(SDPBackend, n)) for n in names if hasattr(SDPBackend, n)}


def agree(got, expected, dtype):
    """Greatest difference over the greatest number, or None where equal numbers leave the result open (indices among ties)."""
    if not got.dtype.is_floating_point:
        return None if dtype != "f32" else float((got != expected).float().mean())
    g, e = got.double(), expected.double()
    most = float(e.abs().max()) if e.numel() else 0.0
    apart = float((g - e).abs().max()) if e.numel() else 0.0
    return apart / most if most > 0 else apart if math.isfinite(apart) else math.inf
