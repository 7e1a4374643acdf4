/**
 * The requests of clients and their answers. `acked` holds the service's promises: the checks hold it to those only.
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
  /** When each was, in their order. */
  readonly acknowledged: { readonly generation: number; readonly atMs: number }[];
  /** The newest that was sent: it may have been taken in without an answer. */
  sentGeneration: number;
  readonly published: Set<string>;
  /** Some client is at it: an update needs the latest revision. */
  isChanging: boolean;
}

/** A call that was answered by an older generation of the function than it should have been. */
export interface StaleCall {
  readonly urn: string;
  readonly text: string;
  readonly sentMs: number;
  readonly endedMs: number;
}

/** Two calls of a session, one after the other, by their instances. */
export interface SessionMove {
  readonly text: string;
  readonly sentMs: number;
  readonly endedMs: number;
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
  readonly staleCalls: StaleCall[] = [];
  /** Ids of calls of the function with a largest number of instances. */
  readonly answeredLimited = new Set<string>();
  readonly sessionMoves: SessionMove[] = [];
  /** While nothing could be written: lines of logs of that time have no place. */
  readonly diskFull: { readonly fromMs: number; readonly toMs: number }[] = [];
  readonly counts: Record<string, number> = {};

  count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }
}
