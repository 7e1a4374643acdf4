import type { SandboxSpec } from '../driver.ts';

/** The networks of process sandboxes in this installation. */
export interface NetworkOptions {
  /**
   * `own`: every sandbox has its own network. `shared`: only sandboxes that cannot work without one have it.
   */
  readonly use: 'own' | 'shared';
  /** The range of the sandboxes' addresses, for example `10.213.0.0/16`. */
  readonly range: string;
  /** True when the service may enable packet forwarding on the host. */
  readonly setForwarding: boolean;
}

export const SHARED_NETWORK: NetworkOptions = { use: 'shared', range: '10.213.0.0/16', setForwarding: false };

/**
 * Chooses the network to request for a sandbox.
 * `own` reaches out, and only this service reaches in. Where own networks are unavailable, the sandbox gets
 * the host's network. Kind `http` gets loopback only instead, because its server must be alone on its port.
 */
export function networkOf(spec: SandboxSpec, use: NetworkOptions['use']): 'own' | 'host' | 'none' {
  if (spec.network === 'none') return 'none';
  const { command } = spec;
  const needsOwn =
    command.kind === 'http' || (command.kind === 'exec' && command.orServesHttp === true) || spec.ports.length > 0;
  return use === 'own' || needsOwn ? 'own' : 'host';
}

/** The network in which a sandbox must be made; null: the network of the waiting sandboxes. */
export type NetworkKind = 'own' | 'none' | null;

/** Chooses the kind. `missing` is the reason own networks are unavailable; null when they are available. */
export function networkKindOf(spec: SandboxSpec, use: NetworkOptions['use'], missing: string | null): NetworkKind {
  const asked = networkOf(spec, use);
  if (asked === 'none' || (asked === 'own' && missing !== null && spec.command.kind === 'http')) return 'none';
  return asked === 'own' && missing === null && use !== 'own' ? 'own' : null;
}

/**
 * Describes the consequence when sandboxes should have their own networks and cannot.
 * `doctor` and every instance show the sentence.
 */
export function sharedNetworkSentence(reason: string): string {
  return `sandboxes have no network of their own here (${reason}): ${REACHES}`;
}

const REACHES =
  'the code shares the network of the host and reaches what listens on its loopback, this service’s own API included, unless that asks for a token (--local-token)';

/** The consequence of a shared network that the operator has chosen. */
export const CHOSEN_NETWORK_SENTENCE = `sandboxes have no network of their own, as process.network: shared says: ${REACHES}`;
