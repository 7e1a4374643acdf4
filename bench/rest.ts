import { cpus } from 'node:os';
import { delay } from './measure.ts';

const LOOK_MS = 200;
/** Of all processors together. */
const BUSY_SHARE = 0.05;
/** A machine that is always busy must not keep the bench. */
const MOST_LOOKS = 50;

/** Until the machine does next to nothing: a delete leaves work to the kernel (networks, control groups, memory) that goes on behind its answer. */
export async function untilAtRest(): Promise<void> {
  let before = processorTimes();
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    await delay(LOOK_MS);
    const now = processorTimes();
    if (now.busy - before.busy <= BUSY_SHARE * (now.all - before.all)) return;
    before = now;
  }
}

/** Since the machine began, milliseconds. */
function processorTimes(): { readonly busy: number; readonly all: number } {
  let busy = 0;
  let idle = 0;
  for (const { times } of cpus()) {
    busy += times.user + times.nice + times.sys + times.irq;
    idle += times.idle;
  }
  return { busy, all: busy + idle };
}
