import type { SandboxSpec } from '../driver.ts';

/** The networks of process sandboxes, as the installation has them. */
export interface NetworkOptions {
  /** `own`: every sandbox has a network of its own. `shared`: only those that cannot do without one. */
  readonly use: 'own' | 'shared';
  /** Where their addresses come from: `10.213.0.0/16`. */
  readonly range: string;
  /** Whether the host may be made to forward packets when it does not yet. */
  readonly setForwarding: boolean;
}

export const SHARED_NETWORK: NetworkOptions = { use: 'shared', range: '10.213.0.0/16', setForwarding: false };

/**
 * Which network to ask for. `own` reaches out, and nobody but this service reaches in; where there is none, the sandbox
 * gets the host's, but for kind `http`: that one gets loopback only, because its server must be alone on its port.
 */
export function networkOf(spec: SandboxSpec, use: NetworkOptions['use']): 'own' | 'host' | 'none' {
  if (spec.network === 'none') return 'none';
  const { command } = spec;
  const needsOwn =
    command.kind === 'http' || (command.kind === 'exec' && command.orServesHttp === true) || spec.ports.length > 0;
  return use === 'own' || needsOwn ? 'own' : 'host';
}

/** A network that a sandbox must be made in; null: in the one that those that wait are in. */
export type NetworkKind = 'own' | 'none' | null;

/** `missing`: why there are none that reach out; null when there are. */
export function networkKindOf(spec: SandboxSpec, use: NetworkOptions['use'], missing: string | null): NetworkKind {
  const asked = networkOf(spec, use);
  if (asked === 'none' || (asked === 'own' && missing !== null && spec.command.kind === 'http')) return 'none';
  return asked === 'own' && missing === null && use !== 'own' ? 'own' : null;
}

/** What follows, as a sentence of `doctor` and of every instance, when they should have networks of their own and cannot. */
export function sharedNetworkSentence(reason: string): string {
  return `sandboxes have no network of their own here (${reason}): ${REACHES}`;
}

const REACHES =
  'the code shares the network of the host and reaches what listens on its loopback, this service’s own API included, unless that asks for a token (--local-token)';

/** The same where the operator wants it so. */
export const CHOSEN_NETWORK_SENTENCE = `sandboxes have no network of their own, as process.network: shared says: ${REACHES}`;
