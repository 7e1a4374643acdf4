import { failedPrecondition, notFound } from '../../core/error.ts';
import type { Instance } from '../../core/instance.ts';
import type { Refusal } from '../../http/access/credentials.ts';
import { refusal } from '../../http/answer.ts';
import type { E2bSandbox } from './sandboxes.ts';

/** Version of the protocol inside of sandboxes. Clients use a feature only from some version on. */
export const ENVD_VERSION = '0.6.13';
/** Clients store the field and never send it. */
const CLIENT_ID = 'rookery';
/** End of a sandbox that has none, because clients need a time. */
const NEVER = '9999-12-31T23:59:59.000Z';

/** The header with the token of private ports. */
export const TRAFFIC_HEADER = 'e2b-traffic-access-token';

/** Facts about the service that answers about sandboxes contain. */
export interface SandboxFacts {
  /** The domain of host names of sandboxes; null: there is none. */
  readonly domain: string | null;
}

/** Returns the answer to a create, connect and resume. */
export function createdView(sandbox: E2bSandbox, { domain }: SandboxFacts): Record<string, unknown> {
  const { instance, id, token, trafficToken } = sandbox;
  const template = instance.spec.template ?? '';
  return {
    sandboxID: id,
    templateID: template,
    alias: template,
    clientID: CLIENT_ID,
    envdVersion: ENVD_VERSION,
    envdAccessToken: token,
    trafficAccessToken: trafficToken,
    domain,
  };
}

/** Returns an item of a list. */
export function listedView({ instance, id }: E2bSandbox): Record<string, unknown> {
  const { spec, startedAtMs, expiresAtMs, labels } = instance;
  const template = spec.template ?? '';
  return {
    sandboxID: id,
    templateID: template,
    alias: template,
    clientID: CLIENT_ID,
    startedAt: new Date(startedAtMs).toISOString(),
    endAt: expiresAtMs === 0 ? NEVER : new Date(expiresAtMs).toISOString(),
    state: isPaused(instance) ? 'paused' : 'running',
    cpuCount: cpuCountOf(instance),
    memoryMB: spec.memoryMb,
    // Files of a sandbox are in its memory.
    diskSizeMB: spec.memoryMb,
    envdVersion: ENVD_VERSION,
    metadata: labels,
    volumeMounts: [],
  };
}

/** Returns the answer about one sandbox. */
export function detailView(sandbox: E2bSandbox, facts: SandboxFacts): Record<string, unknown> {
  const { instance, token } = sandbox;
  return {
    ...listedView(sandbox),
    envdAccessToken: token,
    domain: facts.domain,
    allowInternetAccess: null,
    lifecycle: {
      onTimeout: instance.onExpiry === 'pause' ? 'pause' : 'kill',
      autoResume: instance.spec.resumeOnTraffic === true,
    },
  };
}

/** Returns whole processors, at least one. */
export function cpuCountOf({ spec }: Pick<Instance, 'spec'>): number {
  return Math.max(1, Math.ceil(spec.cpuMillis / 1000));
}

export function isPaused({ status }: Pick<Instance, 'status'>): boolean {
  return status === 'PAUSED';
}

/** Returns true for a sandbox that clients see. Others are being made, are being removed, or have failed. */
export function isVisible({ status }: Pick<Instance, 'status'>): boolean {
  return status === 'RUNNING' || status === 'PAUSED';
}

export const sandboxMissing = (id: string) => notFound(`Sandbox "${id.slice(0, 80)}" not found`);

/** Refuses a request to a sandbox that does not run. Clients look for these words. */
export function sandboxGone(id: string): Refusal {
  return { reason: notFound('sandbox not found'), status: 502, body: gateway(id, 'The sandbox was not found') };
}

/** Refuses a request without the traffic token to a port that needs it. */
export function trafficRefused(sandboxId: string): Refusal {
  const message = `The sandbox needs the header ${TRAFFIC_HEADER} with its traffic access token`;
  return { reason: 'traffic token missing or wrong', status: 403, body: { sandboxId, message, code: 403 } };
}

/** Refuses a request to a port on which no program listens. Clients look for these words. */
export function portClosed(id: string, port: number): Refusal {
  const body = { ...gateway(id, 'The sandbox is running but port is not open'), port };
  return { reason: failedPrecondition('port is not open'), status: 502, body };
}

/** Refuses a request with the status and message. */
export function refused(status: number, message: string): Refusal {
  return { reason: message, ...refusal(status, message) };
}

function gateway(sandboxId: string, message: string) {
  return { sandboxId, message, code: 502 };
}
