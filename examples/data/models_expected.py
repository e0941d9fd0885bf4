#!/usr/bin/env python3
"""Writes what the examples on real data should print with --numbers: the networks run by ONNX Runtime, everything else in NumPy.

    models_expected.py DATA DIGITS    DATA: the folder of `make examples-data`; DIGITS: the model that `classify` writes
    --time                            prints milliseconds of processor time of the networks instead: to open and run, and per run after that

Writes classify_expected.txt, vad_expected.txt, filetype_expected.txt and ocr_expected.txt beside this script. Needs onnxruntime, numpy and Pillow.
"""
import argparse
import json
import math
import pathlib
import time
import wave

import numpy as np
import onnxruntime
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
# What test/onnx/examples_test.sh gives to filetype, of DATA and of this folder.
FILES = ["page.png", "recording.wav", "magika/magika.py", "magika/models/standard_v3_3/config.min.json",
         "silero_vad/data/silero_vad_op18_ifless.onnx", "digits.csv", "digits_weights.safetensors"]


class Network:
    """Runs by ONNX Runtime on one thread. With `times`, an input of `turns` is run so often again, and the time noted."""

    def __init__(self, path, times=None):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        begin = time.process_time()
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.opened, self.name, self.times = time.process_time() - begin, pathlib.Path(path).name, times

    def __call__(self, *inputs, turns=0):
        feed = {port.name: value for port, value in zip(self.session.get_inputs(), inputs)}
        begin = time.process_time()
        results = self.session.run(None, feed)
        first = time.process_time() - begin
        if self.times is not None and turns:
            begin = time.process_time()
            for _ in range(turns):
                self.session.run(None, feed)
            each = (time.process_time() - begin) / turns
            self.times.append(f"{self.name}: first {1e3 * (self.opened + first):.1f} ms, then {1e3 * each:.4f} ms")
        return results


def numbers(values):
    return " ".join(f"{float(v):.6f}" for v in values)


# ---- classify --------------------------------------------------------------------------------------------------------


def classify(path, times):
    rows = np.loadtxt(HERE / "digits.csv", delimiter=",", dtype=np.float32)
    network, lines = Network(path, times), []
    for row in range(1347, 1797, 60):
        scores = network(rows[row, :64].reshape(1, 1, 8, 8), turns=0 if lines else 200)[1][0]
        lines.append(f"{row} {int(rows[row, 64])} {numbers(scores)}")
    return lines


# ---- vad -------------------------------------------------------------------------------------------------------------


def vad(data, times):
    with wave.open(str(data / "recording.wav")) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (16000, 1, 2)
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(np.float32) / 32768
    frames = -(-len(samples) // 512)
    heard = np.zeros(64 + 512 * frames, np.float32)
    heard[64:64 + len(samples)] = samples
    network = Network(data / "silero_vad/data/silero_vad_op18_ifless.onnx", times)
    state, lines = np.zeros((2, 1, 128), np.float32), []
    for i in range(frames):
        inputs = heard[None, 512 * i:512 * i + 576], np.array(16000, np.int64), state
        output, state = network(*inputs, turns=0 if lines else 500)
        lines.append(f"{i} {output[0, 0]:.6f}")
    return lines


# ---- filetype --------------------------------------------------------------------------------------------------------


def filetype(data, times):
    folder = data / "magika/models/standard_v3_3"
    config = json.loads((folder / "config.min.json").read_text())
    network, lines = Network(folder / "model.onnx", times), []
    size, block, padding = config["beg_size"], config["block_size"], config["padding_token"]
    for name in FILES:
        content = (data / name if (data / name).exists() else HERE / name).read_bytes()
        begin, end = content[:block].lstrip()[:size], content[-block:].rstrip()[-size:]
        taken = list(begin) + [padding] * (size - len(begin)) + [padding] * (size - len(end)) + list(end)
        scores = network(np.array([taken], np.int32), turns=0 if lines else 50)[0][0]
        lines.append(f"{config['target_labels_space'][scores.argmax()]} {scores.max():.6f}")
    return lines


# ---- ocr -------------------------------------------------------------------------------------------------------------


def scaled(page, box, turned, height, width, row):
    """The box of page[h][w][3] as planes[3][height][row] in -1..1, by bilinear interpolation between pixels' centres."""
    left, top, right, bottom = box
    x = np.clip(left + (np.arange(width) + 0.5) * (right - left) / width - 0.5, 0, page.shape[1] - 1)
    y = np.clip(top + (np.arange(height) + 0.5) * (bottom - top) / height - 0.5, 0, page.shape[0] - 1)
    if turned:
        x, y = x[::-1], y[::-1]
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    x1, y1 = np.minimum(x0 + 1, page.shape[1] - 1), np.minimum(y0 + 1, page.shape[0] - 1)
    fx, fy = (x - x0)[None, :, None], (y - y0)[:, None, None]
    above = page[y0][:, x0] * (1 - fx) + page[y0][:, x1] * fx
    below = page[y1][:, x0] * (1 - fx) + page[y1][:, x1] * fx
    planes = np.zeros((3, height, row), np.float32)
    planes[:, :, :width] = ((above * (1 - fy) + below * fy) / 127.5 - 1).transpose(2, 0, 1)
    return planes


def cores(marked):
    """The pixels of each group that touch each other."""
    left = set(zip(*np.nonzero(marked)))
    while left:
        stack, group = [left.pop()], []
        while stack:
            y, x = stack.pop()
            group.append((y, x))
            for near in [(v, u) for v in (y - 1, y, y + 1) for u in (x - 1, x, x + 1)]:
                if near in left:
                    left.remove(near)
                    stack.append(near)
        yield np.array(group)


def find_boxes(map_, page):
    height, width = page.shape[0] / map_.shape[0], page.shape[1] / map_.shape[1]
    for core in cores(map_ > 0.3):
        (top, left), (bottom, right) = core.min(0), core.max(0) + 1
        score = map_[core[:, 0], core[:, 1]].mean()
        if min(bottom - top, right - left) < 3 or score < 0.5:
            continue
        by = len(core) * 1.6 / (2 * ((right - left) + len(core) / (right - left)))
        sides = (left - by) * width, (top - by) * height, (right + by) * width, (bottom + by) * height
        most = page.shape[1], page.shape[0], page.shape[1], page.shape[0]
        yield [int(min(max(side, 0), m) + 0.5) for side, m in zip(sides, most)], score


def decoded(scores, characters):
    best, text, sure = scores.argmax(1), "", []
    for t, k in enumerate(best):
        if k != 0 and (t == 0 or k != best[t - 1]):
            text += characters[k - 1] if k <= len(characters) else " "
            sure.append(scores[t, k])
    return text, float(np.mean(sure)) if sure else 0


def ocr(data, times):
    page = np.asarray(Image.open(data / "page.png").convert("RGB")).astype(np.float64)
    folder = data / "rapidocr_onnxruntime/models"
    detector, classifier, reader = [Network(folder / name, times) for name in [
        "ch_PP-OCRv4_det_infer.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx"]]
    characters = reader.session.get_modelmeta().custom_metadata_map["character"].split("\n")
    if not characters[-1]:
        characters.pop()
    scale = max(736 / min(page.shape[:2]), 1)
    height, width = [32 * round(side * scale / 32) for side in page.shape[:2]]
    whole = scaled(page, (0, 0, page.shape[1], page.shape[0]), False, height, width, width)
    found = sorted(find_boxes(detector(whole[None], turns=5)[0][0, 0], page), key=lambda b: (b[0][1], b[0][0]))
    own = [math.ceil(48 * (right - left) / (bottom - top)) for (left, top, right, bottom), _ in found]
    images = np.stack([scaled(page, b, False, 48, min(w, 192), 192) for (b, _), w in zip(found, own)])
    upside_down = classifier(images, turns=5)[0][:, 1]
    row = max([320] + own)
    images = np.stack([scaled(page, b, u > 0.9, 48, w, row) for (b, _), w, u in zip(found, own, upside_down)])
    lines = []
    for (box, score), u, scores in zip(found, upside_down, reader(images, turns=5)[0]):
        text, sure = decoded(scores, characters)
        lines += ["box " + " ".join(map(str, box)), "scores " + numbers((score, u, sure)), "line " + text]
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("digits", type=pathlib.Path)
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    times = [] if arguments.time else None
    results = {"classify": classify(arguments.digits, times), "vad": vad(arguments.data, times),
               "filetype": filetype(arguments.data, times), "ocr": ocr(arguments.data, times)}
    if times:
        print("\n".join(times))
        return
    for name, lines in results.items():
        (HERE / f"{name}_expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
