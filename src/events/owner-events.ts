import type { FailedAlarm } from '../core/alarm.ts';
import { parseUrn } from '../core/urn.ts';
import type { InstanceChange } from '../instances/changes.ts';
import type { JobChange } from '../jobs/job-changes.ts';
import type { EventLog } from './event-log.ts';

/** Maximum length of a reason, which comes from a sandbox. A line of a list shows about as much. */
const REASON_CHARS = 512;
/** Time within which changes of a function become one event: a burst starts hundreds of instances. */
const SCALED_MS = 250;

interface Scale {
  readonly tenant: string;
  readonly all: Set<string>;
  readonly ready: Set<string>;
  timer: NodeJS.Timeout | undefined;
  published: string;
}

/**
 * Turns changes of instances and jobs into events. Counts the instances of each function, and adds an event
 * when the counts change.
 */
export class OwnerEvents {
  readonly #log: EventLog;
  /** Counts by the URN of the version. Versions without instances are removed. */
  readonly #scales = new Map<string, Scale>();

  constructor(log: EventLog) {
    this.#log = log;
  }

  readonly instance = (change: InstanceChange): void => {
    const { kind, id, owner, tenant, namespace, name, reason } = change;
    if (kind !== 'found') {
      this.#log.add(tenant, kind, {
        owner: owner.kind,
        instance_id: id,
        ...(owner.kind === 'function' ? { function: owner.key } : { namespace, name }),
        ...(reason === '' ? {} : { reason: cut(reason) }),
      });
    }
    if (owner.kind === 'function') this.#scaled(tenant, owner.key, id, kind);
  };

  readonly job = ({ tenant, id, status, message, attempt }: JobChange): void => {
    this.#log.add(tenant, 'job', { job: id, status, message: cut(message), attempt });
  };

  readonly alarmFailed = ({ agentId, reason, tenant, ...about }: FailedAlarm): void => {
    this.#log.add(tenant, 'alarm_failed', { owner: 'agent', instance_id: agentId, ...about, reason: cut(reason) });
  };

  /** Returns the number of instances per function, over all versions. Omits functions without instances. */
  counts(): { tenant: string; name: string; instances: number; ready: number }[] {
    const counts = new Map<string, { tenant: string; name: string; instances: number; ready: number }>();
    for (const [version, { all, ready }] of this.#scales) {
      const urn = parseUrn(version);
      if (urn === null) continue;
      const { tenant, name } = urn;
      const count = counts.get(`${tenant}/${name}`) ?? { tenant, name, instances: 0, ready: 0 };
      count.instances += all.size;
      count.ready += ready.size;
      counts.set(`${tenant}/${name}`, count);
    }
    return [...counts.values()];
  }

  #scaled(tenant: string, urn: string, id: string, kind: InstanceChange['kind']): void {
    let scale = this.#scales.get(urn);
    if (scale === undefined) {
      scale = { tenant, all: new Set(), ready: new Set(), timer: undefined, published: '' };
      this.#scales.set(urn, scale);
    }
    if (kind === 'ended') scale.all.delete(id);
    else scale.all.add(id);
    if (kind === 'ready' || kind === 'found') scale.ready.add(id);
    else scale.ready.delete(id);
    const counted = scale;
    scale.timer ??= setTimeout(() => this.#publishScale(urn, counted), SCALED_MS).unref();
  }

  #publishScale(urn: string, scale: Scale): void {
    scale.timer = undefined;
    const { all, ready } = scale;
    const now = `${all.size}/${ready.size}`;
    if (now !== scale.published) {
      this.#log.add(scale.tenant, 'scaled', { function: urn, instances: all.size, ready: ready.size });
    }
    scale.published = now;
    if (all.size === 0) this.#scales.delete(urn);
  }
}

function cut(text: string): string {
  return text.length > REASON_CHARS ? `${text.slice(0, REASON_CHARS - 1)}…` : text;
}
