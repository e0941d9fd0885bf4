"""Times of contestants that take turns on one stream of a GPU; without a GPU everything runs once, and nothing is timed."""
import time

try:
    import torch
except ImportError:  # the fake driver of the tests needs none
    torch = None


class Bench:
    def __init__(self, library, context, seconds):
        self.library, self.context = library, context
        self.end = time.monotonic() + seconds
        self.gpu = torch is not None and torch.cuda.is_available()
        self.device = "cuda" if self.gpu else "cpu"
        self.stream = torch.cuda.Stream() if self.gpu else None
        self.handle = self.stream.cuda_stream if self.gpu else None
        properties = torch.cuda.get_device_properties(0) if self.gpu else None
        self.l2 = getattr(properties, "L2_cache_size", 64 << 20) if self.gpu else 0
        self.name = properties.name if self.gpu else "no GPU"
        self.copy = None  # bytes per second, read and written
        if self.gpu:  # f32 means f32
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True

    def out_of_time(self, needed=0):
        return time.monotonic() > self.end - needed

    def describe(self):
        facts = {"device": self.name, "libdlc": self.library.version(), "early": self.library.events}
        if torch is not None:
            facts["torch"] = torch.__version__
        if self.gpu:
            facts.update(cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), copy_bandwidth=self.copy_bandwidth())
        return facts

    def copy_bandwidth(self):
        """Of a tensor of 1 GiB to another one, as PyTorch copies it: bytes read and bytes written."""
        if self.copy is None and self.gpu:
            with torch.cuda.stream(self.stream):
                x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1)
                y = torch.empty_like(x)
                seconds = self.contest({"copy": [lambda: y.copy_(x)]})["copy"]
            self.copy = 2 * x.numel() / seconds["median"]
        return self.copy

    def once(self, run, count):
        """Seconds of the device from one event to another around so many calls. The stream is kept busy for 20 us for each of them, so
        that what the host takes to give it work does not count, of contestants that let it go ahead."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200000 + 40000 * count)  # cycles, of about 0.5 ns
        begin.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def contest(self, contestants, samples=15, sample_seconds=1e-3, settle=lambda: None):
        """contestants: name -> functions without arguments, called in turn: the same work on other memory. Returns name -> quartiles of
        one call, or None without a GPU."""
        def calls(runs, count):
            def run():
                for i in range(count):
                    runs[i % len(runs)]()
            return run

        for runs in contestants.values():
            runs[0]()
        settle()
        if not self.gpu:
            return {name: None for name in contestants}
        torch.cuda.synchronize()
        counts, times = {}, {name: [] for name in contestants}
        with torch.cuda.stream(self.stream):
            for name, runs in contestants.items():
                calls(runs, len(runs))()  # every memory once
                settle()
                counts[name] = max(1, min(200, int(sample_seconds / max(self.once(calls(runs, 1), 1), 1e-7))))
            for _ in range(samples):
                for name, runs in contestants.items():
                    times[name].append(self.once(calls(runs, counts[name]), counts[name]) / counts[name])
                    settle()
        return {name: quartiles(t) for name, t in times.items()}


def quartiles(times):
    t = sorted(times)
    return {"median": t[len(t) // 2], "low": t[len(t) // 4], "high": t[3 * len(t) // 4]}
