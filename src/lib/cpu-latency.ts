import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { availableParallelism } from 'node:os';

/** Longer than a create with its first call, or a delete, and over before a machine at rest would notice. */
const LOW_MS = 25;
/** All that have nothing to do stay awake: with many of them that is more work than it saves. */
const MOST_PROCESSORS = 16;

/** Microseconds, as the kernel reads them (Documentation/power/pm_qos_interface.rst, "CPU latency QoS interface"). */
const NONE = int32(0);
/** What it has where nobody asks for anything (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`). */
const ANY = int32(2_000_000_000);

export interface CpuLatencyFiles {
  /** What puts processors to sleep here. */
  readonly driver: string;
  /** Takes the longest time that a processor may need to wake up, as long as the file is open. */
  readonly request: string;
}

const FILES: CpuLatencyFiles = {
  driver: '/sys/devices/system/cpu/cpuidle/current_driver',
  request: '/dev/cpu_dma_latency',
};

/**
 * Keeps the processors of a virtual machine awake for a moment. One that has nothing to do gives itself back to the host, and is 50 µs to 1 ms away when
 * it is woken; a create and a delete wake one a dozen times.
 */
export class CpuLatency {
  readonly #file: number;
  /** Undefined: processors sleep as they like. */
  #timer: NodeJS.Timeout | undefined;
  #untilMs = 0;
  #isClosed = false;

  private constructor(file: number) {
    this.#file = file;
  }

  /**
   * Null where it is not known to help or not possible: the processors are no virtual ones that halt (`haltpoll`), there are more than 16, or this process
   * may not ask (it is not root, or in a container).
   */
  static open(files = FILES, processors = availableParallelism()): CpuLatency | null {
    if (processors > MOST_PROCESSORS) return null;
    try {
      if (readFileSync(files.driver, 'latin1').trim() !== 'haltpoll') return null;
      const file = openSync(files.request, 'r+');
      // A file that was just opened asks for none at all.
      writeSync(file, ANY);
      return new CpuLatency(file);
    } catch {
      return null;
    }
  }

  /** No processor sleeps for the next 25 ms. */
  lower(): void {
    if (this.#isClosed) return;
    this.#untilMs = performance.now() + LOW_MS;
    if (this.#timer !== undefined) return;
    this.#ask(NONE);
    this.#timer = setTimeout(this.#look, LOW_MS).unref();
  }

  /** Asks for nothing any more. The kernel sees to that too when the process ends. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#timer);
    closeSync(this.#file);
  }

  readonly #look = (): void => {
    const leftMs = this.#untilMs - performance.now();
    this.#timer = leftMs > 0 ? setTimeout(this.#look, leftMs).unref() : undefined;
    if (this.#timer === undefined) this.#ask(ANY);
  };

  #ask(latency: Buffer): void {
    try {
      writeSync(this.#file, latency);
    } catch {
      // It only was to be faster.
      this.close();
    }
  }
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}
