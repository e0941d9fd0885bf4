"""libdlc from Python by way of ctypes: as much of the public header as the benchmark on a GPU needs. Tensors are those of PyTorch, passed
by DLPack; where there is no PyTorch, memory of the host (HostTensor)."""
import ctypes as c
import struct

DTYPES = {"bool": (6, 8), "i8": (0, 8), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "f16": (2, 16), "bf16": (4, 16), "f32": (2, 32),
          "f64": (2, 64)}  # DLPack's type code, bits


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DataType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Limits(c.Structure):
    _fields_ = [("nesting", c.c_int), ("memory", c.c_size_t), ("time_ms", c.c_int64), ("cancel", c.c_void_p)]


class ContextOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("target", c.c_char_p), ("allocator", c.c_void_p), ("threads", c.c_int),
                ("compile_threads", c.c_int), ("parallel_for", c.c_void_p), ("parallel_user", c.c_void_p), ("parallel_width", c.c_int),
                ("log", c.c_void_p), ("log_user", c.c_void_p), ("clock_ns", c.c_void_p), ("clock_user", c.c_void_p),
                ("trace", c.c_void_p), ("trace_user", c.c_void_p),
                ("cache_bytes", c.c_size_t), ("plan_cache_entries", c.c_size_t), ("cache_directory", c.c_char_p),
                ("cache_directory_bytes", c.c_size_t), ("isolate_compiler", c.c_bool), ("compiler_path", c.c_char_p),
                ("background_compile", c.c_bool), ("default_float_modes", c.c_bool), ("limits", Limits),
                ("coroutine_stack", c.c_size_t), ("no_batches", c.c_bool)]


class RunOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("cancel", c.c_void_p), ("budget_ms", c.c_int64), ("stream", c.c_void_p),
                ("event", c.c_void_p), ("stop_at", c.c_uint), ("begun", c.c_void_p)]


class OutputSlot(c.Structure):
    _fields_ = [("tensor", c.POINTER(DLTensor)), ("managed", c.c_void_p)]


class Statistics(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)] + [(name, c.c_uint64) for name in
                ("runs", "plan_hits", "plan_builds", "plan_evictions", "kernel_hits", "kernel_builds", "kernel_evictions",
                 "interpreted_regions", "cache_bytes", "arena_bytes", "copied_bytes", "compile_ns", "run_ns",
                 "transferred_bytes")] + [("later", c.c_uint64 * 32)]


class Error(Exception):
    pass


class HostTensor:
    """Compact, in memory of the host; zeros, or numbers given as bytes."""

    def __init__(self, dtype, dims, data=b""):
        code, bits = DTYPES[dtype]
        count = 1
        for d in dims:
            count *= d
        self.memory = c.create_string_buffer(max(count * bits // 8, 1) + 64)
        at = (c.addressof(self.memory) + 63) // 64 * 64
        c.memmove(at, data, len(data))
        self.shape = (c.c_int64 * max(len(dims), 1))(*dims)
        self.dl = DLTensor(at, Device(1, 0), len(dims), DataType(code, bits, 1), self.shape, None, 0)

    def floats(self):
        count = 1
        for i in range(self.dl.ndim):
            count *= self.dl.shape[i]
        return struct.unpack("<%df" % count, c.string_at(self.dl.data, 4 * count))


class TorchTensor:
    """A tensor of PyTorch's, alive as long as this is."""

    def __init__(self, tensor):
        pointer = c.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
        self.tensor = tensor
        # -1: PyTorch does not wait; runs are given its stream
        self.capsule = tensor.__dlpack__(stream=-1) if tensor.is_cuda else tensor.__dlpack__()
        self.dl = DLTensor.from_address(pointer(self.capsule, b"dltensor"))  # DLManagedTensor begins with its tensor


class Library:
    def __init__(self, path):
        self.c = c.CDLL(path, mode=c.RTLD_GLOBAL)  # libmodels.so is linked with it
        self.c.dlc_error_message.restype = c.c_char_p
        self.c.dlc_version.restype = c.c_char_p
        for name in ("context_destroy", "error_message", "graph_destroy", "program_destroy", "call_destroy"):
            getattr(self.c, "dlc_" + name).argtypes = [c.c_void_p]
        self.c.dlc_context_statistics.argtypes = [c.c_void_p, c.c_void_p]
        self.c.dlc_graph_parse.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]
        self.c.dlc_compile.argtypes = [c.c_void_p] * 4
        self.c.dlc_run.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p, c.c_int, c.c_void_p, c.c_int]
        self.c.dlc_call_create.argtypes = [c.c_void_p, c.c_void_p, c.c_int, c.c_void_p, c.c_int, c.c_void_p]
        self.c.dlc_call_run.argtypes = [c.c_void_p, c.c_void_p]
        self.events = hasattr(self.c, "dlc_event_destroy")  # runs can return early
        if self.events:
            self.c.dlc_event_destroy.argtypes = [c.c_void_p]

    def version(self):
        return self.c.dlc_version().decode()


class Context:
    def __init__(self, library, target, threads=0):
        self.library, self.lib, self.handle = library, library.c, c.c_void_p()
        options = ContextOptions(c.sizeof(ContextOptions), target.encode(), compile_threads=threads)
        self.check(self.lib.dlc_context_create(c.byref(options), c.byref(self.handle)))

    def check(self, status):
        if status:
            raise Error(self.lib.dlc_error_message(self.handle).decode())

    def statistics(self):
        s = Statistics(c.sizeof(Statistics))
        self.lib.dlc_context_statistics(self.handle, c.byref(s))
        return s

    def parse(self, text):
        graph, data = c.c_void_p(), text.encode()
        self.check(self.lib.dlc_graph_parse(self.handle, data, len(data), c.byref(graph)))
        return graph

    def compile(self, graph):
        """Destroys the graph."""
        program = c.c_void_p()
        try:
            self.check(self.lib.dlc_compile(self.handle, graph, None, c.byref(program)))
        finally:
            self.lib.dlc_graph_destroy(graph)
        return Program(self, program)

    def close(self):
        self.lib.dlc_context_destroy(self.handle)


def pointers(tensors):
    return (c.POINTER(DLTensor) * max(len(tensors), 1))(*[c.pointer(t.dl) for t in tensors])


class Program:
    def __init__(self, context, handle):
        self.context, self.handle = context, handle

    def run(self, inputs, outputs):
        slots = (OutputSlot * len(outputs))(*[OutputSlot(c.pointer(t.dl), None) for t in outputs])
        self.context.check(self.context.lib.dlc_run(self.handle, None, pointers(inputs), len(inputs), slots, len(outputs)))

    def call(self, inputs, outputs, stream=None):
        return Call(self, inputs, outputs, stream)

    def close(self):
        self.context.lib.dlc_program_destroy(self.handle)


class Call:
    """Bound tensors, on a stream of the host's if one is given. Runs do not wait where the library can do without."""

    def __init__(self, program, inputs, outputs, stream):
        self.context, self.handle, self.kept = program.context, c.c_void_p(), (inputs, outputs)
        self.event = c.c_void_p()
        self.pending = []
        early = self.context.library.events
        self.options = RunOptions(c.sizeof(RunOptions), stream=stream, event=c.addressof(self.event) if early else None)
        self.context.check(self.context.lib.dlc_call_create(program.handle, pointers(inputs), len(inputs), pointers(outputs),
                                                            len(outputs), c.byref(self.handle)))

    def run(self):
        status = self.context.lib.dlc_call_run(self.handle, c.byref(self.options))
        if status:
            self.context.check(status)
        if self.event.value:
            self.pending.append(self.event.value)
            self.event.value = None

    def settle(self):
        """Waits for the runs that returned early."""
        for event in self.pending:
            self.context.lib.dlc_event_destroy(event)
        self.pending.clear()

    def close(self):
        self.settle()
        self.context.lib.dlc_call_destroy(self.handle)
