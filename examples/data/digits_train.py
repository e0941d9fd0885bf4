#!/usr/bin/env python3
"""Trains the digits example's network with NumPy alone and writes its weights.

    digits_train.py             train, write digits_weights.safetensors and digits_expected.txt
    digits_train.py --check     evaluate the shipped weights, compare with digits_expected.txt
    --output DIR                write to (or check) DIR instead of this script's folder

Data. digits.csv holds 1,797 rows of 64 pixels (0..16, row-major 8x8) and a label. The first 1,347 rows are
trained on; the last 450 are only ever evaluated on. Settings below were chosen with rows 1,047..1,346 held back.

Network, [N,1,8,8] to class scores; pixels are divided by 16; convolutions are 3x3 cross-correlations, pad 1:
    conv1 1->16, ReLU; conv2 16->32, ReLU; max pool 2x2; conv3 32->32, ReLU;
    flatten in C,H,W order; dense1 512->64, ReLU; dense2 64->10; softmax
Convolution weights are [Cout,Cin,KH,KW]; dense weights are [in,out].

Weights file: safetensors, float32, in the order of SHAPES.

Reproducibility. The bytes written do not depend on the BLAS, the number of threads or the CPU. Every operand of a
sum is first rounded to a fixed-point grid so coarse that the exact sum fits the 53 bits of a double (see GRIDS):
no addition rounds, so their order cannot matter. What remains is elementwise and made of correctly rounded
operations; random numbers come from the frozen RandomState generator, random_sample and permutation only.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np

TRAIN_ROWS = 1347
HELD_OUT_ROWS = 450
EXPECTED_ROWS = range(TRAIN_ROWS, TRAIN_ROWS + HELD_OUT_ROWS, 60)  # 8 of the held-out rows
EXPECTED_TOLERANCE = 1e-5

SEED = 1998
EPOCHS = 80
BATCH = 64
STEP_SIZE = 0.002
LABEL_SMOOTHING = 0.05
AVERAGING = 0.995  # decay of the running average of the weights, which is what is shipped

SHAPES = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "conv3.weight": (32, 32, 3, 3),
    "conv3.bias": (32,),
    "dense1.weight": (512, 64),
    "dense1.bias": (64,),
    "dense2.weight": (64, 10),
    "dense2.bias": (10,),
}

# (fraction bits, limit) of each operand class. The longest sum, a convolution's weight gradient, adds
# BATCH * 64 = 2^12 products of an activation (2^19 units) and an error (2^21 units): 52 bits.
GRIDS = {"activation": (14, 32.0), "weight": (17, 4.0), "error": (20, 2.0), "probability": (30, 1.0)}


def snap(values, grid):
    bits, limit = GRIDS[grid]
    return np.rint(np.clip(values, -limit, limit) * 2.0**bits) * 2.0**-bits


def uniform(random, bound, shape):
    """Between -bound and bound; RandomState.uniform may or may not fuse its multiplication and addition."""
    return 2 * bound * random.random_sample(shape) - bound


def load_digits(path):
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    assert table.shape == (TRAIN_ROWS + HELD_OUT_ROWS, 65)
    return table[:, :64].reshape(-1, 8, 8) / 16.0, table[:, 64]


# ---- Weights file

def write_weights(path, weights):
    header, at = {}, 0
    for name, value in weights.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + 4 * value.size]}
        at += 4 * value.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in weights.values():
            file.write(value.astype("<f4").tobytes())


def read_weights(path):
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data, 0)
    weights = {}
    for name, is_ in json.loads(data[8:8 + size]).items():
        begin, end = is_["data_offsets"]
        weights[name] = np.frombuffer(data[8 + size + begin:8 + size + end], "<f4").reshape(is_["shape"])
    return weights


# ---- Training: channels-last inside, convolutions as products of gathered 3x3 windows

def windows(x):
    """[n][h][w][c] -> [n*h*w][c*9], the zero-padded 3x3 neighbourhood of each point, in c,kh,kw order."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, h, w, c = x.shape
    shifted = [padded[:, i:i + h, j:j + w, :] for i in range(3) for j in range(3)]
    return np.stack(shifted, axis=-1).reshape(n * h * w, c * 9)


def gradients(weights, images, targets):
    """One batch: images [n][8][8], targets [n][10]; the mean cross-entropy's gradient for each weight."""
    w = {name: snap(value, "weight") for name, value in weights.items()}
    n = len(images)

    x, saved = images[..., None], {}
    for layer in ("conv1", "conv2", "conv3"):
        kernel = w[layer + ".weight"]
        gathered = windows(x)
        y = gathered @ kernel.reshape(len(kernel), -1).T + w[layer + ".bias"]
        x = snap(np.maximum(y, 0), "activation").reshape(x.shape[:3] + (len(kernel),))
        saved[layer] = gathered, x
        if layer == "conv2":
            blocks = x.reshape(n, 4, 2, 4, 2, 32)
            x = blocks.max(axis=(2, 4))
            pool_mask = blocks == x[:, :, None, :, None, :]
    flat = x.transpose(0, 3, 1, 2).reshape(n, -1)
    hidden = snap(np.maximum(flat @ w["dense1.weight"] + w["dense1.bias"], 0), "activation")
    scores = hidden @ w["dense2.weight"] + w["dense2.bias"]

    # exp(s) as (1 + s/1024)^1024: squarings round alike everywhere, library exponentials do not.
    power = 1 + np.maximum(scores - scores.max(axis=1, keepdims=True), -64) / 1024
    for _ in range(10):
        power = power * power
    power = snap(power, "probability")
    error = snap(power / power.sum(axis=1, keepdims=True) - targets, "error")

    grads = {"dense2.weight": hidden.T @ error, "dense2.bias": error.sum(axis=0)}
    error = snap(error @ w["dense2.weight"].T * (hidden > 0), "error")
    grads["dense1.weight"] = flat.T @ error
    grads["dense1.bias"] = error.sum(axis=0)
    error = (error @ w["dense1.weight"].T).reshape(n, 32, 4, 4).transpose(0, 2, 3, 1)
    for layer in ("conv3", "conv2", "conv1"):
        kernel = w[layer + ".weight"]
        gathered, y = saved[layer]
        if layer == "conv2":
            error = (pool_mask * error[:, :, None, :, None, :]).reshape(n, 8, 8, 32)
        error = snap(error * (y > 0), "error")
        columns = error.reshape(-1, len(kernel))
        grads[layer + ".weight"] = (columns.T @ gathered).reshape(kernel.shape)
        grads[layer + ".bias"] = columns.sum(axis=0)
        if layer != "conv1":
            flipped = kernel[:, :, ::-1, ::-1].transpose(1, 0, 2, 3).reshape(kernel.shape[1], -1)
            error = (windows(error) @ flipped.T).reshape(y.shape[:3] + (kernel.shape[1],))
    return {name: value / n for name, value in grads.items()}


def distort(images, random):
    """Each image under its own small affine map (shift, shear, scale, turn), bilinear, zero outside."""
    n = len(images)
    linear = uniform(random, 0.15, (4, n, 1, 1))
    shift = uniform(random, 0.8, (2, n, 1, 1))
    row, column = np.meshgrid(np.arange(8) - 3.5, np.arange(8) - 3.5, indexing="ij")
    source = (np.clip(row + row * linear[0] + column * linear[1] + shift[0] + 3.5, -1, 8),
              np.clip(column + row * linear[2] + column * linear[3] + shift[1] + 3.5, -1, 8))
    low = [np.minimum(np.floor(s), 7).astype(np.int64) for s in source]
    part = [s - l for s, l in zip(source, low)]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    image = np.arange(n)[:, None, None]
    result = 0.0
    for i in (0, 1):
        for j in (0, 1):
            share = (part[0] if i else 1 - part[0]) * (part[1] if j else 1 - part[1])
            result = result + share * padded[image, low[0] + 1 + i, low[1] + 1 + j]
    return snap(result, "activation")


def train(images, labels, seed=SEED, epochs=EPOCHS, progress=print):
    random = np.random.RandomState(seed)
    weights = {}
    for name, shape in SHAPES.items():
        fan_in = shape[0] if name.startswith("dense") else int(np.prod(shape[1:]))
        bound = 0.0 if name.endswith("bias") else np.sqrt(6.0 / fan_in)
        weights[name] = uniform(random, bound, shape)
    average = {name: value.copy() for name, value in weights.items()}
    first = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    second = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    targets = np.eye(10)[labels] * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING / 10

    steps = epochs * (len(images) // BATCH)
    step, bias1, bias2 = 0, 1.0, 1.0
    for epoch in range(epochs):
        order = random.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            rows = order[start:start + BATCH]
            grads = gradients(weights, distort(images[rows], random), targets[rows])
            # Adam (Kingma and Ba, 2015), its step falling linearly to nothing.
            rate = STEP_SIZE * (1 - step / steps)
            step, bias1, bias2 = step + 1, bias1 * 0.9, bias2 * 0.999
            for name, g in grads.items():
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * (g * g)
                scale = np.sqrt(second[name] / (1 - bias2)) + 1e-8
                weights[name] = weights[name] - rate * (first[name] / (1 - bias1)) / scale
                average[name] = AVERAGING * average[name] + (1 - AVERAGING) * weights[name]
        if (epoch + 1) % 10 == 0:
            progress(f"epoch {epoch + 1} of {epochs}: {accuracy(average, images, labels):.2f} % on the training rows")
    return {name: value.astype(np.float32) for name, value in average.items()}


# ---- Evaluation: written from the definitions, sharing nothing with the training pass

def scores_of(weights, images):
    """[n][8][8] -> [n][10], the inputs of the softmax, in double precision."""
    def conv(x, layer):
        kernel, bias = (weights[f"{layer}.{part}"].astype(np.float64) for part in ("weight", "bias"))
        n, _, h, w = x.shape
        y = np.zeros((n, len(bias), h, w)) + bias[:, None, None]
        for i in range(3):
            for j in range(3):
                dy, dx = i - 1, j - 1
                to = np.s_[:, :, max(0, -dy):h - max(0, dy), max(0, -dx):w - max(0, dx)]
                of = np.s_[:, :, max(0, dy):h - max(0, -dy), max(0, dx):w - max(0, -dx)]
                y[to] += np.einsum("nchw,oc->nohw", x[of], kernel[:, :, i, j], optimize=True)
        return np.where(y > 0, y, 0)

    def dense(x, layer):
        return x.dot(weights[layer + ".weight"].astype(np.float64)) + weights[layer + ".bias"]

    x = conv(conv(images[:, None].astype(np.float64), "conv1"), "conv2")
    x = np.maximum(x[:, :, ::2], x[:, :, 1::2])
    x = np.maximum(x[..., ::2], x[..., 1::2])
    x = conv(x, "conv3").reshape(len(images), 512)
    return dense(np.maximum(dense(x, "dense1"), 0), "dense2")


def accuracy(weights, images, labels):
    return 100.0 * np.mean(scores_of(weights, images).argmax(axis=1) == labels)


def write_expected(path, weights, images, labels):
    rows = list(EXPECTED_ROWS)
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write("# row of digits.csv (from 0), its label, the 10 inputs of the softmax\n")
        for row, values in zip(rows, scores_of(weights, images[rows])):
            file.write(f"{row} {labels[row]} " + " ".join(f"{v:.6f}" for v in values) + "\n")


def check_expected(path, weights, images, labels):
    table = np.loadtxt(path, ndmin=2)
    rows = table[:, 0].astype(np.int64)
    worst = np.abs(table[:, 2:] - scores_of(weights, images[rows])).max()
    return bool(worst <= EXPECTED_TOLERANCE and np.array_equal(table[:, 1], labels[rows]))


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="evaluate the weights instead of training them")
    parser.add_argument("--output", type=pathlib.Path, default=here, metavar="DIR", help="where the weights are")
    options = parser.parse_args()

    images, labels = load_digits(here / "digits.csv")
    weights_path, expected_path = options.output / "digits_weights.safetensors", options.output / "digits_expected.txt"
    if not options.check:
        weights = train(images[:TRAIN_ROWS], labels[:TRAIN_ROWS])
        write_weights(weights_path, weights)
        write_expected(expected_path, weights, images, labels)

    weights = read_weights(weights_path)
    assert {name: value.shape for name, value in weights.items()} == SHAPES
    held_out = accuracy(weights, images[-HELD_OUT_ROWS:], labels[-HELD_OUT_ROWS:])
    print(f"accuracy {held_out:.1f} % on {HELD_OUT_ROWS} held-out digits")
    if not check_expected(expected_path, weights, images, labels):
        print(f"{expected_path.name} does not match the weights", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
