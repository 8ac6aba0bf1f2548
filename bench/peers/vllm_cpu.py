"""vLLM's CPU build on the engine bench's requests; run by ``bench_engine.py`` in an environment of its own.

    python vllm_cpu.py MODEL_FOLDER REQUESTS.json RESULT.json

Knows nothing of kvedu. ``REQUESTS.json`` maps a name to a list of [prompt ids, output tokens]; the result maps
it to the seconds and CPU seconds of each of three runs. Compiled, on all cores (its own default keeps
one for the system), which the CPU seconds show.
"""

import json
import os
import sys
import time

CORES = len(os.sched_getaffinity(0))
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "3",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{CORES - 1}",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "OMP_NUM_THREADS": str(CORES),
}


def cpu_seconds() -> float:
    """User and system time of this process and all below it."""
    import psutil

    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def main() -> None:
    """Serve each list three times (the mix once, as it would find its own prefixes again) and write what it took."""
    from vllm import LLM, SamplingParams

    folder, requests, result = sys.argv[1:]
    with open(requests) as file:
        work = json.load(file)
    llm = LLM(folder, dtype="bfloat16", max_model_len=2048, seed=0, skip_tokenizer_init=True)

    def serve(some: list) -> dict[str, float]:
        settings = [SamplingParams(temperature=0, ignore_eos=True, max_tokens=n, detokenize=False) for _, n in some]
        prompts = [{"prompt_token_ids": ids} for ids, _ in some]
        start, cpu = time.perf_counter(), cpu_seconds()
        outs = llm.generate(prompts, settings, use_tqdm=False)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        assert [len(out.outputs[0].token_ids) for out in outs] == [n for _, n in some]
        return {"seconds": seconds, "cpu_seconds": cpu}

    serve([[list(range(100, 164)), 8]])
    taken = {name: [serve(some) for some in runs] for name, runs in work.items()}
    with open(result, "w") as file:
        json.dump({"runs": taken, "cores": CORES}, file)


if __name__ == "__main__":
    main()
