// llama.cpp made to write a given answer: its own drafts, its own passes, the tokens prescribed.
//
// A draft stands where it spells the answer; after it the answer's next token follows, whatever
// the model would have said. So drafting and computing cost what they cost in llama.cpp, and how
// much is accepted depends on the answer alone. Built by scripts/peers.sh against its libraries.
//
//   llama-replay --model FILE --ctx-size N --threads N [--spec-type TYPE]
//   in, a line each:  PROMPT_TOKENS ANSWER_TOKENS then that many ids
//   out, a line each: prefill_us decode_us steps tokens
#include "arg.h"
#include "common.h"
#include "llama.h"
#include "log.h"
#include "speculative.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

struct Times {
    int64_t prefill_us = 0, decode_us = 0;
    int steps = 0;
};

// All but the last token of the prompt, in batches.
static void prefill(llama_context * ctx, common_speculative * spec, const llama_tokens & prompt, size_t width) {
    for (size_t i = 0; i + 1 < prompt.size(); i += width) {
        common_batch batch(ctx);
        for (size_t j = i; j < std::min(i + width, prompt.size() - 1); j++) {
            batch.add(prompt[j], j, 0, false);
        }
        llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch.get());
        if (spec) {
            common_speculative_process(spec, batch);
        }
    }
}

static llama_tokens draft(common_speculative * spec, const llama_tokens & before, llama_token last, int most) {
    llama_tokens found;
    if (spec && most > 0) {
        common_speculative_get_draft_params(spec, 0) = {
            /* .drafting = */ true,
            /* .n_max    = */ most,
            /* .pos0     = */ (llama_pos) before.size(),
            /* .id_last  = */ last,
            /* .prompt   = */ &before,
            /* .result   = */ &found,
        };
        common_speculative_draft(spec);
    }
    return found;
}

static Times replay(llama_context * ctx, common_speculative * spec, const llama_tokens & prompt,
                    const llama_tokens & answer, size_t width) {
    Times times;
    auto * memory = llama_get_memory(ctx);
    llama_memory_seq_rm(memory, 0, -1, -1);
    int64_t start = ggml_time_us();
    prefill(ctx, spec, prompt, width);
    llama_tokens before(prompt.begin(), prompt.end() - 1);
    if (spec) {
        common_speculative_begin(spec, 0, before);
    }
    times.prefill_us = ggml_time_us() - start;
    start = ggml_time_us();
    llama_token last = prompt.back();
    common_batch batch(ctx);
    for (size_t done = 0; done < answer.size();) {
        llama_tokens guess = draft(spec, before, last, (int) (answer.size() - done) - 1);
        batch.clear();
        batch.add(last, before.size(), 0, true);
        for (size_t i = 0; i < guess.size(); i++) {
            batch.add(guess[i], before.size() + 1 + i, 0, true);
        }
        llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch.get());
        if (spec) {
            common_speculative_process(spec, batch);
        }
        llama_get_logits_ith(ctx, -1);  // waits for the pass
        size_t accepted = 0;
        while (accepted < guess.size() && done + accepted < answer.size() &&
               guess[accepted] == answer[done + accepted]) {
            accepted++;
        }
        if (spec) {
            common_speculative_accept(spec, 0, accepted);
        }
        before.push_back(last);
        size_t end = std::min(done + accepted + 1, answer.size());
        before.insert(before.end(), answer.begin() + done, answer.begin() + end - 1);
        last = answer[end - 1];
        done = end;
        llama_memory_seq_rm(memory, 0, before.size(), -1);
        times.steps++;
    }
    times.decode_us = ggml_time_us() - start;
    return times;
}

int main(int argc, char ** argv) {
    common_params params;
    common_init();
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SPECULATIVE)) {
        return 1;
    }
    const auto limits = common_speculative_get_output_limits(
        params.n_batch, params.n_parallel, common_speculative_n_max(&params.speculative));
    params.n_outputs_max = limits.total;
    params.n_outputs_max_per_seq = limits.per_seq;
    llama_backend_init();
    auto loaded = common_init_from_params(params);
    llama_context * ctx = loaded->context();
    if (!ctx) {
        return 1;
    }
    params.speculative.draft.ctx_tgt = ctx;
    bool speculates = false;
    for (auto type : params.speculative.types) {
        speculates = speculates || type != COMMON_SPECULATIVE_TYPE_NONE;
    }
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        size_t prompt_count = 0, answer_count = 0;
        words >> prompt_count >> answer_count;
        llama_tokens prompt(prompt_count), answer(answer_count);
        for (auto & id : prompt) words >> id;
        for (auto & id : answer) words >> id;
        if (!words || prompt.empty() || prompt_count + answer_count > llama_n_ctx(ctx)) {
            fprintf(stderr, "a line that is no task, or longer than the context\n");
            return 1;
        }
        // A new one each time: nothing of an earlier answer is known.
        common_speculative_ptr spec(speculates ? common_speculative_init(params.speculative, 1) : nullptr);
        Times times = replay(ctx, spec.get(), prompt, answer, params.n_batch);
        printf("%lld %lld %d %zu\n", (long long) times.prefill_us, (long long) times.decode_us, times.steps,
               answer.size());
        fflush(stdout);
    }
    llama_backend_free();
    return 0;
}
