import type { ServerResponse } from 'node:http';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { EventLog } from '../events/event-log.ts';
import { EVENTS_PATH, PeerEvents, tellEvents } from '../events/peer-events.ts';
import type { MetricsHistory } from '../telemetry/history.ts';
import { HISTORY_PATH, HistoryOfNodes } from '../telemetry/history.ts';
import type { Logger } from '../telemetry/logger.ts';

export interface ReplicasObservedOptions {
  readonly nodeId: string;
  readonly log: EventLog;
  readonly history: MetricsHistory;
  /** Cluster of this replica. null: there are no other replicas. */
  readonly cluster: ClusterNode | null;
  readonly logger: Logger;
}

/** Events and metrics that replicas exchange, so that each can show those of all; for server.ts. */
export class ReplicasObserved {
  readonly history: HistoryOfNodes;
  readonly #log: EventLog;
  readonly #events: PeerEvents | null;

  constructor({ nodeId, log, history, cluster, logger }: ReplicasObservedOptions) {
    const living = () => cluster?.others() ?? [];
    this.#log = log;
    this.#events =
      cluster &&
      new PeerEvents(log, { living, open: (address, path) => cluster.open(address, path) }, (text, fields) =>
        logger.warn(fields, text),
      );
    const read = async (address: string, path: string) => await cluster?.read(address, path);
    this.history = new HistoryOfNodes({ nodeId, history, others: { living, read } });
  }

  /** Answers a request of another replica. Returns false if the path is unknown. */
  readonly answer = (url: string, response: ServerResponse): boolean => {
    const [path, text] = url.split('?', 2);
    const query = new URLSearchParams(text);
    if (path === EVENTS_PATH) {
      response.writeHead(200, { 'Content-Type': 'application/jsonl' });
      tellEvents(this.#log, query.get('after'), response);
      return true;
    }
    const history = path === HISTORY_PATH ? this.history.answer(query) : null;
    if (history === null) return false;
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(history));
    return true;
  };

  /** Resolves when this replica has the events of the others, or after a short wait. */
  async start(): Promise<void> {
    await this.#events?.start();
  }

  close(): void {
    this.#events?.close();
  }
}
