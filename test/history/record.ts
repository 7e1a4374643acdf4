/** Requests of clients and their answers. Checks hold the service only to the promises in `acked`. */
export interface AgentHistory {
  readonly name: string;
  readonly key: string;
  /** Ids that the service returned for creates with this key. */
  readonly ids: Set<string>;
  /** Set before the delete is sent. From then on the agent may be removed. */
  deleteSent: boolean;
  deleteAcked: boolean;
  readonly calls: CallHistory[];
}

export interface CallHistory {
  readonly id: string;
  readonly sentAt: number;
  /** Time of the answer; null when none arrived and the outcome is unknown. */
  answeredAt: number | null;
  answer: { readonly boot: string; readonly n: number; readonly again: boolean } | null;
}

export interface FunctionHistory {
  readonly name: string;
  urn: string;
  revisionId: string;
  /** Newest generation whose update was acknowledged. */
  generation: number;
  /** Acknowledged generations with their times, in order. */
  readonly acknowledged: { readonly generation: number; readonly atMs: number }[];
  /** Newest generation that was sent. The service may have stored it without an answer. */
  sentGeneration: number;
  readonly published: Set<string>;
  /** True while a client changes the function, because an update needs the latest revision. */
  isChanging: boolean;
}

/** A call that an older generation of the function answered than the required one. */
export interface StaleCall {
  readonly urn: string;
  readonly text: string;
  readonly sentMs: number;
  readonly endedMs: number;
}

/** Two consecutive calls of a session, with their instances. */
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
  /** Violations that were noticed immediately, one sentence each. */
  readonly violations = new Set<string>();
  readonly staleCalls: StaleCall[] = [];
  /** Ids of calls of the function with an instance limit. */
  readonly answeredLimited = new Set<string>();
  readonly sessionMoves: SessionMove[] = [];
  /** Periods in which the disk was full. Log lines of these periods may be missing. */
  readonly diskFull: { readonly fromMs: number; readonly toMs: number }[] = [];
  readonly counts: Record<string, number> = {};

  count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }
}
