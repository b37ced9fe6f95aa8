// How a kernel tells the host of bad input: the first report of a submit is kept, and raised as an IndexError.
// A template defines STATUS as the number of its last binding, and is given `site` by the host.

layout(binding = STATUS) buffer Status { uint ticks, site; int index, bound; } status;

void report(uint site, int index, int bound) {
    if (atomicCompSwap(status.site, 0u, site) == 0u) {
        status.index = index;
        status.bound = bound;
    }
}
