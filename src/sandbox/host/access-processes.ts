import { failedPrecondition } from '../../core/error.ts';
import type { ProcessInfo, ProcessStream, SandboxProcesses } from '../access.ts';
import { FileAccess } from './access-files.ts';

const refusal = () => Promise.reject(failedPrecondition('processes that outlive connections are not supported here'));

/** The file and process operations of a sandbox over access connections. */
export abstract class ProcessAccess extends FileAccess implements SandboxProcesses {
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
