"""Groups samples of perf and py-spy by what the process was doing."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

OTHERS = "others"

TRACKER = (
    ("reading the query", r"\(tracker/wire/http_request\.py|parse_(announce|scrape) \("),
    ("composing the answer", r"\(tracker/wire/(http_reply|endpoint)\.py"),
    ("HTTP headers and connections", r"\(tracker/(frontends/|wire/proxy\.py)"),
    ("policy", r"\(tracker/core/(?:announce|intervals|refusals|scrape)\.py"),
    ("packing for the store, and unpacking", r"\(tracker/store/swarms/codec\.py"),
    (
        "batching and the store connection",
        r"\(tracker/store/(swarms/swarms|client/(batching|pipe|connection|scripts))\.py|\(redis/|hiredis",
    ),
    ("rate limits", r"\(tracker/core/rate_limits\.py"),
    ("counting, GeoIP and background work", r"\(tracker/(?!cli/|__main__|system/event_loop|app/|runtime/)"),
    ("aiohttp", r"\(aiohttp/|_http_parser"),
)
"""Groups of the tracker's own time, by frames as py-spy writes them; the innermost matching frame decides."""
EVENT_LOOP = "event loop: uvloop, libuv, asyncio"

STORE = (
    ("Lua", r"[lL]ua|ldb|lm_|strmapchars|list_|murmur|ValkeyModule_On"),  # murmur32 hashes its strings
    ("allocation", r"malloc|calloc|realloc|free|_int_|unlink_chunk|arena|tcache|^_?mi_"),
    ("numbers to text and back", r"strto|printf|mpn|round_and_return|ll2string|string2|fpconv|_IO_|d2string"),
    ("hash tables and key lookup", r"hashtable|siphash|dict|lookupKey|objectGet|memcmp|kvstore|[dD]bFind"),
    ("small hashes and sets (listpacks)", r"^lp|hashType|setType|intset|h(m?get|set|incrby)Command"),
    ("sorted sets", r"^z(set|sl|add)|^sl[A-Z]"),
    ("strings", r"getrange|setrange|append|sds|stringObject|StringObject|mem(move|cpy|set|chr)|strlen|strchr"),
    ("commands and replies", r"[cC]all|[rR]epl|[cC]lient|[cC]ommand|ACL|VM_|[pP]ropagate|tracking|hdr_|strcasecmp"),
)
"""Groups of the store's own time, by function; the first match decides."""

KERNEL = (
    ("kernel: sockets, writing", r"_(write|writev|sendmsg|sendto)$|vfs_writev$"),
    ("kernel: sockets, reading", r"_(read|readv|recvmsg|recvfrom)$"),
    ("kernel: waiting for events", r"epoll"),
    (
        "kernel: opening and closing connections",
        r"_(accept4?|close|shutdown|socket|setsockopt|getpeername|getsockname)$",
    ),
    ("kernel: memory", r"page_fault|_(mmap|munmap|brk|madvise)$"),
)
"""Groups of time in the kernel, by the outermost function that identifies a system call."""
KERNEL_OTHERS = "kernel: others"

_SYSTEM_CALL = re.compile(r"(ksys_|__x64_sys_|__sys_|do_epoll|vfs_writev|asm_exc_)")
_SYSTEM_CALLS = re.compile(
    r"^(__GI_+(libc_)?|_+libc_)?(write|writev|send|sendmsg|sendto|read|readv|recv|recvmsg|recvfrom|accept4?|close|connect|"
    r"epoll_(p?wait|ctl)|poll|select|futex|shutdown|getpid|socket) \(lib(c|pthread)[.-]"
)
_THREAD_OF_THE_LOOP = re.compile(r"\(tracker/(cli/commands/serve|app/web_process)\.py")
_FRAME = re.compile(r"^\s*([0-9a-f]+) (.+?) \((.*)\)$")


class Sample(NamedTuple):
    """One sample of perf: frames as (offset, function, file), the innermost first."""

    pid: int
    frames: list[tuple[int, str, str]]

    @property
    def in_kernel(self) -> bool:
        return "kernel" in self.frames[0][2]


def read_perf(text: str) -> Iterator[Sample]:
    """Parses the output of `perf script -F pid,ip,sym,dso`."""
    for block in text.split("\n\n"):
        head, *lines = block.strip("\n").split("\n")
        found = [_FRAME.match(line) for line in lines]
        frames = [(int(match[1], 16), match[2], match[3]) for match in found if match]
        if frames and head.strip().isdigit():
            yield Sample(int(head), frames)


def kernel_group(sample: Sample) -> str:
    names = [name for _, name, file in sample.frames if "kernel" in file]
    entry = next((name for name in reversed(names) if _SYSTEM_CALL.match(name)), names[-1])
    return _first(entry, KERNEL) or KERNEL_OTHERS


def store_group(sample: Sample, resolve: Callable[[int], str]) -> str:
    """``resolve`` returns the function at an offset of the server's file, for frames that perf cannot name."""
    offset, name, file = sample.frames[0]
    if name == "[unknown]" and "-server" in file:
        name = resolve(offset)
    return _first(name, STORE) or OTHERS


def tracker_groups(stacks: Iterable[str]) -> Counter[str]:
    """Samples by group, of py-spy's raw stacks (outermost first, count last), without those in a system call.

    py-spy looks by the clock, so it also sees a process that waits for its turn, mostly at the end of a system
    call; perf counts those. And it sees threads that sleep, which are none of the loop's.
    """
    groups: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if _THREAD_OF_THE_LOOP.search(stack) and not _SYSTEM_CALLS.match(frames[-1]):
            groups[_innermost(frames)] += int(count)
    return groups


def _innermost(frames: list[str]) -> str:
    for frame in reversed(frames):
        if group := _first(frame, TRACKER):
            return group
    return EVENT_LOOP


def _first(name: str, groups: Iterable[tuple[str, str]]) -> str:
    return next((group for group, pattern in groups if re.search(pattern, name)), "")


def scaled(groups: Mapping[str, int], total: float) -> dict[str, float]:
    """Shares of ``total``, the largest first."""
    samples = sum(groups.values())
    if not samples:
        return {}
    return {name: total * count / samples for name, count in sorted(groups.items(), key=lambda item: -item[1])}
