#!/usr/bin/env python3
"""Takes what the benchmark needs out of the wheels of requirements.txt: unpack_peers.py WHEELS TO
TO/<peer>/lib and TO/<peer>/include are written; nothing else of a wheel is unpacked, nothing of it is run."""
import pathlib
import re
import shutil
import sys
import zipfile

# wheel | members | peer | place: a name in lib, or a folder that the pattern's group is put under
TABLE = [
    ("onnxruntime-", r"onnxruntime/capi/libonnxruntime\.so\.[\d.]+", "onnxruntime", "lib/libonnxruntime.so.1"),
    ("scipy_openblas32-", r"scipy_openblas32/lib/libscipy_openblas\.so", "openblas", "lib/libscipy_openblas.so"),
    ("scipy_openblas32-", r"scipy_openblas32/include/(cblas|openblas_config)\.h", "openblas", "include/{}.h"),
    ("paddlepaddle-", r"paddle/libs/libdnnl\.so\.3", "onednn", "lib/libdnnl.so.3"),
    ("onednn_devel-", r".*/include/(oneapi/dnnl/\w+)\.h", "onednn", "include/{}.h"),
]


def main(wheels, to):
    for prefix, members, peer, place in TABLE:
        found = sorted(pathlib.Path(wheels).glob(prefix + "*.whl"))
        if not found:
            sys.exit(f"no wheel {prefix}* in {wheels}")
        with zipfile.ZipFile(found[-1]) as wheel:
            names = [(n, re.fullmatch(members, n)) for n in wheel.namelist()]
            names = [(n, match) for n, match in names if match]
            if not names:
                sys.exit(f"{found[-1].name} has no {members}")
            for name, match in names:
                target = pathlib.Path(to) / peer / place.format(*match.groups())
                target.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(name) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)


if __name__ == "__main__":
    main(*sys.argv[1:3])
