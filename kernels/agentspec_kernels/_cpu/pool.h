// Worker threads that sleep while idle and meet at a barrier after each operation of a run.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <thread>
#include <vector>

namespace agentspec {

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `word` differs from `seen`: a short spin, then the kernel. The spin is short because a
// thread that spins while another process needs its core costs both of them far more than a wake-up.
static inline void wait_change(std::atomic<int32_t>& word, int32_t seen, int spins) {
  for (int i = 0; i < spins; i++) {
    if (word.load(std::memory_order_acquire) != seen) return;
    relax();
  }
  while (word.load(std::memory_order_acquire) == seen)
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
static inline void wake_all(std::atomic<int32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

class Pool {
 public:
  explicit Pool(int threads) : n_(threads) {
    for (int i = 1; i < n_; i++) workers_.emplace_back([this] { serve(); });
  }
  ~Pool() {
    stop_ = true;
    run_.fetch_add(1);
    wake_all(run_);
    for (auto& worker : workers_) worker.join();
  }
  int threads() const { return n_; }

  // Runs body() on every thread and returns when all have finished it.
  void run(void (*body)(Pool&, void*), void* argument) {
    body_ = body;
    argument_ = argument;
    next_.store(0);
    run_.fetch_add(1, std::memory_order_release);
    if (n_ > 1) wake_all(run_);
    body(*this, argument);
  }

  // The next `grain` tasks of the current operation, as their first index.
  int64_t take(int64_t grain) { return next_.fetch_add(grain, std::memory_order_relaxed); }

  // Ends an operation: returns when every thread has arrived; the task counter starts anew.
  void barrier() {
    if (n_ == 1) {
      next_.store(0, std::memory_order_relaxed);
      return;
    }
    int32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_acq_rel);
      if (sleepers_.load(std::memory_order_acquire)) wake_all(phase_);
      return;
    }
    for (int i = 0; i < kSpins; i++) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      relax();
    }
    sleepers_.fetch_add(1);
    wait_change(phase_, phase, 0);
    sleepers_.fetch_sub(1);
  }

 private:
  // Some microseconds, about what a futex call costs. Longer is no faster alone, and beside another
  // busy process ruinous: two engines on two cores had 0.11 of one's speed each at 4000.
  static constexpr int kSpins = 200;

  void serve() {
    int32_t seen = 0;
    while (true) {
      wait_change(run_, seen, kSpins);
      seen = run_.load(std::memory_order_acquire);
      if (stop_) return;
      body_(*this, argument_);
    }
  }

  int n_;
  std::vector<std::thread> workers_;
  std::atomic<int32_t> run_{0}, phase_{0}, arrived_{0}, sleepers_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stop_{false};
  void (*body_)(Pool&, void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace agentspec
