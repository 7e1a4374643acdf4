/**
 * What clients did and heard. `acked` is what the service has promised: the checks hold it to that, and to nothing that it never said.
 */
export interface AgentHistory {
  readonly name: string;
  readonly key: string;
  /** Ids that creates with this key were answered with. */
  readonly ids: Set<string>;
  /** Set before the delete is sent: from then on it may be gone. */
  deleteSent: boolean;
  deleteAcked: boolean;
  readonly calls: CallHistory[];
}

export interface CallHistory {
  readonly id: string;
  readonly sentAt: number;
  /** When the answer came; null: none came, nobody knows whether it ran. */
  answeredAt: number | null;
  answer: { readonly boot: string; readonly n: number; readonly again: boolean } | null;
}

export interface FunctionHistory {
  readonly name: string;
  urn: string;
  revisionId: string;
  /** The newest generation whose update was acknowledged. */
  generation: number;
  /** The newest that was sent: it may have been taken in without an answer. */
  sentGeneration: number;
  readonly published: Set<string>;
  /** Some client is at it: an update needs the latest revision. */
  isChanging: boolean;
}

export interface AsyncHistory {
  readonly mark: string;
  readonly requestId: string;
}

export interface JobHistory {
  readonly id: string;
  readonly lines: number;
  readonly exitCode: number;
  acked: boolean;
}

export class History {
  readonly agents: AgentHistory[] = [];
  readonly functions: FunctionHistory[] = [];
  readonly asyncCalls: AsyncHistory[] = [];
  readonly jobs: JobHistory[] = [];
  /** What was wrong the moment that it was heard, a sentence each. */
  readonly violations = new Set<string>();
  /** While nothing could be written: lines of logs of that time have no place. */
  readonly diskFull: { readonly fromMs: number; readonly toMs: number }[] = [];
  readonly counts: Record<string, number> = {};

  count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }
}
