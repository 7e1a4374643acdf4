import { failedPrecondition } from '../../src/core/error.ts';
import type { ProcessInfo, ProcessStream, SandboxProcesses } from '../../src/sandbox/access.ts';
import { NoFiles } from './no-files.ts';

const refusal = () => Promise.reject(failedPrecondition('a fake sandbox has no processes that outlive connections'));

/** Refuses the processes that outlive connections and the files of accounts, for fake sandboxes. */
export class NoProcesses extends NoFiles implements SandboxProcesses {
  startProcess(): Promise<ProcessStream> {
    return refusal();
  }

  attachProcess(): Promise<ProcessStream> {
    return refusal();
  }

  listProcesses(): Promise<readonly ProcessInfo[]> {
    return refusal();
  }

  writeInput(): Promise<void> {
    return refusal();
  }

  closeInput(): Promise<void> {
    return refusal();
  }

  signalProcess(): Promise<void> {
    return refusal();
  }

  resizeProcess(): Promise<void> {
    return refusal();
  }
}
