#!/usr/bin/env python3
"""The layers of train_server.py in PyTorch, and single derivatives.
train_torch.py --version | --serve eager|compile THREADS | --learn"""
import contextlib
import functools
import itertools
import logging
import math
import os
import sys
import time

if sys.argv[1] == "--serve":
    os.environ["OMP_NUM_THREADS"] = sys.argv[3]
import torch
import torch.nn.functional as F

import train_server

logging.disable(logging.WARNING)  # of what a GPU would need
NARROW = {"bf16": torch.bfloat16, "f16": torch.float16}
LAYOUTS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}


class Layers(train_server.Layers):
    relu, relu6, gelu = staticmethod(torch.relu), staticmethod(F.relu6), staticmethod(F.gelu)
    joined, permuted = staticmethod(torch.cat), staticmethod(torch.permute)

    def linear(self, x):
        w, bias = self.next(), self.next()
        if x.dim() > 2:  # one product of all rows
            return torch.addmm(bias, x.reshape(-1, x.shape[-1]), w).reshape(*x.shape[:-1], w.shape[1])
        return torch.addmm(bias, x, w)

    def norm(self, x):
        scale, bias = self.next(), self.next()
        return F.layer_norm(x, scale.shape, scale, bias)

    def convolution(self, x, stride=1, groups=1):
        w = self.next()
        return F.conv2d(x, w, None, stride, w.shape[2] // 2, 1, groups)

    def biased(self, x):
        return torch.relu(x + self.next())

    def batch_norm(self, x):
        scale, bias = self.next(), self.next()
        return F.batch_norm(x, None, None, scale, bias, True)

    def pooled(self, x, side=2):
        return F.max_pool2d(x, side, 2, side // 2 if side > 2 else 0)

    def doubled(self, x):
        return F.conv_transpose2d(x, self.next(), stride=2)

    def rows(self, ids):
        return F.embedding(ids, self.next())

    def attention(self, q, k, v, causal):
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(1, 2)

    def lstm(self, x):
        weights = [self.next() for _ in range(2 * self.case.number("layers", 2))]
        zeros = torch.zeros(len(weights) // 2, x.shape[1], weights[1].shape[1])
        _, h, _ = torch.lstm(x, (zeros, zeros), weights, False, len(weights) // 2, 0.0, True, False, False)
        return h[-1]


def gates(w, order):
    """Weights [1, 4 d, ...] of an LSTM with their four gates in another order: libdlc's are i o f g, PyTorch's i f g o."""
    return torch.cat([w.chunk(4, -2)[i] for i in order], -2)


def taken(case, layout, weights):
    """Weights as PyTorch keeps them: an LSTM's without directions, images' filters in the layout of the images."""
    if case.parameters["network"] == "lstm":
        weights = [gates(w, (0, 2, 3, 1))[0] if w.dim() == 3 else w for w in weights]
    formats = [layout if w.dim() == 4 else torch.contiguous_format for w in weights]
    return [w.clone(memory_format=kept).requires_grad_() for w, kept in zip(weights, formats)]


def given(case, weights):
    if case.parameters["network"] == "lstm":
        weights = [gates(w, (0, 3, 1, 2)) if i < len(weights) - 2 else w for i, w in enumerate(weights)]
    return [w.detach().contiguous().numpy().copy() for w in weights]


def loss_of(case):
    network, narrow = train_server.network_of(case), NARROW.get(case.parameters.get("products"))

    def loss(weights, x, labels):
        with torch.autocast("cpu", narrow) if narrow else contextlib.nullcontext():
            scores = network(Layers(case, weights), x)
        return F.cross_entropy(scores.float(), labels)

    return loss


def descend(weights, gradients, rate):
    torch._foreach_add_(weights, gradients, alpha=-rate.item())


def descend_compiled(weights, gradients, rate):
    """Its rate is a tensor, since a number would become part of the code."""
    torch._foreach_sub_(weights, torch._foreach_mul(gradients, rate))


def compiled(function):
    return torch.compile(function, dynamic=False, fullgraph=True)


def make_step(case, compiles, layout, weights, x, labels):
    """A function of the rate that makes a step and returns the loss, and the weights that it trains."""
    loss, update, state = loss_of(case), descend, taken(case, layout, weights)
    if compiles:
        loss, update = compiled(loss), compiled(descend_compiled)
    x = x.to(memory_format=layout) if x.dim() == 4 else x

    def step(rate):
        value = loss(state, x, labels)
        gradients = torch.autograd.grad(value, state)
        with torch.no_grad():
            update(state, gradients, rate)
        return value.detach()

    return step, state


def timed(function, *operands):
    start = time.perf_counter_ns()
    result = function(*operands)
    return time.perf_counter_ns() - start, result


def train(case, compiles, operands):
    """In each layout of images, the faster one chosen; results and the time of the first step are those of the first."""
    x, labels, *weights, _ = operands
    zero, one, best = torch.zeros(()), torch.ones(()), None
    for name, layout in LAYOUTS.items() if x.dim() == 4 else [("", torch.contiguous_format)]:
        step, state = make_step(case, compiles, layout, weights, x, labels)
        first, loss = timed(step, one)
        answers = [loss.numpy(), *given(case, state)]
        with torch.no_grad():
            for to, w in zip(state, taken(case, layout, weights)):
                to.copy_(w)
        step(zero)
        seconds, _ = timed(step, zero)
        if best is None:
            results = answers, first
        if best is None or seconds < best[0]:
            best = seconds, step, name

    def run(count):
        for _ in range(count):
            best[1](zero)

    return results[0], run, results[1], 0, best[2]


# ---- single derivatives, of what forward kernels keep; operands as train.c declares them -----------------------------------------------


def convolution(case, by_weights):
    n, ci, co, h, w, kh, kw, stride, groups = (case.number(key, 1) for key in "n ci co h w kh kw stride groups".split())
    pad, x, filters = case.number("pad", 0), torch.zeros(n, ci, h, w), torch.zeros(co, ci // groups, kh, kw)
    options = None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, [not by_weights, by_weights, False]
    backward = torch.ops.aten.convolution_backward
    if by_weights:
        return lambda x, dy: [backward(dy, x, filters, *options)[1].contiguous()]
    return lambda dy, w: [backward(dy, x, w, *options)[0].contiguous()]


def attention(q, k, v, y, lse, dy, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(dy, q, k, v, y, lse, 0.0, causal)


def softmax(y, dy):
    return [torch.ops.aten._softmax_backward_data(dy, y, -1, torch.float32)]


def layer_norm(x, dy, scale, mean, variance):
    mean, r = mean[:, None], torch.rsqrt(variance + 1e-5)[:, None]
    return torch.ops.aten.native_layer_norm_backward(dy, x, scale.shape, mean, r, scale, scale, [True] * 3)


def rms_norm(x, dy, scale, square):
    """PyTorch has no kernel of it for the processor."""
    r = torch.rsqrt(square + 1e-5)[:, None]
    n, d = x * r, dy * scale
    return [r * (d - n * (n * d).mean(-1, keepdim=True)), (dy * n).sum(0)]


def batch_norm(x, dy, scale, mean, variance):
    r = torch.rsqrt(variance + 1e-5)
    return torch.ops.aten.native_batch_norm_backward(dy, x, scale, None, None, mean, r, True, 1e-5, [True] * 3)


def product(x, dy):
    return [x.T @ dy]


def product_input(dy, w):
    return [dy @ w.T]


DERIVATIVES = {f.__name__: f for f in (attention, softmax, layer_norm, rms_norm, batch_norm, product, product_input)}


def derivative(case, compiles, operands):
    if case.name.startswith("convolution"):
        function = convolution(case, case.name == "convolution weights")
    elif case.name == "attention":
        function = functools.partial(attention, causal="causal" in case.parameters)
    else:
        function = DERIVATIVES[case.name.replace(" ", "_")]
    function = compiled(function) if compiles else function
    with torch.inference_mode():
        first, results = timed(function, *operands)

    def run(count):
        with torch.inference_mode():
            for _ in range(count):
                function(*operands)

    return [result.numpy() for result in results], run, first, 0, ""


def prepare(case, operands):
    compiles, threads = sys.argv[2] == "compile", int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    operands = [torch.tensor(operand) for operand in operands]
    return {"train": train, "backward": derivative}[case.kind](case, compiles, operands)


def peak(function):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(changes, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(sizes), default=0)


def learner(case, weights):
    loss, state = loss_of(case), taken(case, torch.contiguous_format, [torch.tensor(w) for w in weights])
    adam = torch.optim.Adam(state, 0.001)

    def step(x, labels, number):
        value = loss(state, torch.tensor(x), torch.tensor(labels))
        if number:
            adam.zero_grad()
            value.backward()
            adam.step()
        return value.item()

    return step


if __name__ == "__main__":
    train_server.main(f"PyTorch {torch.__version__}", prepare, learner, peak)
