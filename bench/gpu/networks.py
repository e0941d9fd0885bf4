"""The networks of bench/models and examples/digits in PyTorch, written from their papers with the weights' usual names, and their inputs."""
import json
import struct

import torch
import torch.nn.functional as F


def resnet(w, dtype):
    def layer(x, at, conv, bn, stride=1):
        weight = w[at + conv + ".weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        n = at + bn
        return F.batch_norm(x, w[n + ".running_mean"], w[n + ".running_var"], w[n + ".weight"], w[n + ".bias"], False, 0.0, 1e-5)

    def run(image):
        x = F.max_pool2d(F.relu(layer(image.to(dtype), "", "conv1", "bn1", 2)), 3, 2, 1)
        for stage in range(1, 5):
            block = 0
            while "layer%d.%d.conv1.weight" % (stage, block) in w:
                at, stride = "layer%d.%d." % (stage, block), 2 if stage > 1 and block == 0 else 1
                y = F.relu(layer(x, at, "conv1", "bn1"))
                y = F.relu(layer(y, at, "conv2", "bn2", stride))
                y = layer(y, at, "conv3", "bn3")
                if at + "downsample.0.weight" in w:
                    x = layer(x, at, "downsample.0", "downsample.1", stride)
                x, block = F.relu(y + x), block + 1
        return F.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"]).float()

    return run


def bert(w, heads):
    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)

    def run(ids, mask):
        e = "embeddings."
        x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][:ids.shape[1]]
        x = norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        split = lambda t: t.unflatten(-1, (heads, -1)).transpose(1, 2)
        layer = 0
        while "encoder.layer.%d.output.dense.weight" % layer in w:
            at = "encoder.layer.%d." % layer
            q, k, v = (split(linear(x, at + "attention.self." + n)) for n in ("query", "key", "value"))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            y = linear(y.transpose(1, 2).flatten(2), at + "attention.output.dense")
            x = norm(y + x, at + "attention.output.LayerNorm")
            y = linear(F.gelu(linear(x, at + "intermediate.dense")), at + "output.dense")
            x, layer = norm(y + x, at + "output.LayerNorm"), layer + 1
        return x.float()

    return run


def network(name, weights, dtype):
    if name.startswith("resnet"):
        return resnet(weights, dtype)
    return bert(weights, 12 if name == "bert-base" else 2)


def inputs(name, batch, tokens, device, seed):
    g = torch.Generator().manual_seed(seed)
    if name.startswith("resnet"):
        side = 224 if name == "resnet50" else 32
        noise, colour = torch.randn((batch, 3, side, side), generator=g), torch.randn((batch, 3, 1, 1), generator=g)
        return ((noise + colour).to(device),)
    ids = torch.randint(0, 30522 if name == "bert-base" else 97, (batch, tokens), generator=g)
    mask = torch.ones((batch, tokens), dtype=torch.bool)
    mask[1:, 3 * tokens // 4:] = False  # padding in all sentences but the first
    return ids.to(device), mask.to(device)


# ---- digits ------------------------------------------------------------------------------------------------------------------------

def digits_images(path):
    rows = [[float(x) for x in line.split(",")] for line in open(path) if line.strip()]
    table = torch.tensor(rows)
    return table[:, :64].reshape(-1, 1, 8, 8).contiguous(), table[:, 64].to(torch.int64)


def digits_weights(path):
    """A .safetensors file of f32."""
    data, found = open(path, "rb").read(), {}
    size = struct.unpack_from("<Q", data, 0)[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        begin, end = tensor["data_offsets"]
        numbers = struct.unpack_from("<%df" % ((end - begin) // 4), data, 8 + size + begin)
        found[name] = torch.tensor(numbers).reshape(tensor["shape"])
    return found


def digits(weights, device):
    w = {name: t.to(device) for name, t in weights.items()}

    def conv(x, name):
        return F.relu(F.conv2d(x, w[name + ".weight"], w[name + ".bias"], padding=1))

    def dense(x, name):  # [in, out]
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def run(pixels):
        x = conv(conv(pixels / 16, "conv1"), "conv2")
        x = conv(F.max_pool2d(x, 2), "conv3").flatten(1)
        return dense(F.relu(dense(x, "dense1")), "dense2")

    return run
