import { createHash } from 'node:crypto';
import { failedPrecondition } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import { Counter } from '../../lib/counter.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { BridgeRules } from './bridge-rules.ts';
import { daemonMessage, type Engine, LABEL_INSTALLATION, LABEL_TENANT, statusOf } from './engine.ts';

/** Time for which a network without containers is kept, so that the tenant's next create can reuse it. */
const KEEP_MS = 30_000;
/**
 * Number of attempts to remove a network that seems unused. A busy daemon may count endpoints wrong for good
 * (moby/moby#42119). The daemon then removes such a network only after its own restart.
 */
const REMOVE_TRIES = 20;
const REMOVE_PAUSE_MS = 100;

/** Hold on a network during a start. */
export interface NetworkLease {
  readonly name: string;
  release(): void;
}

/**
 * Prefix of the host interfaces that lead to containers (`network_rules.py`). Linux permits 15 characters for
 * the whole name.
 */
const BRIDGE_BEGINNING = 'rkb';

/** Returns the prefix of the bridge names of an installation. */
export function bridgesOf(installation: string): string {
  return BRIDGE_BEGINNING + installation.slice(0, 4);
}

/**
 * Manages one bridge network per tenant. Tenants do not share a network, and containers on one network do not
 * reach each other. Networks are created on demand and removed some time after their last use.
 */
export class TenantNetworks {
  readonly #engine: Engine;
  readonly #installation: string;
  readonly #logger: Logger;
  readonly #rules: BridgeRules;
  /** Network name → creation, pending or done. */
  readonly #made = new Map<string, Promise<void>>();
  /** Network name → number of starts. A container that does not run yet does not keep its network. */
  readonly #leases = new Counter();
  /** Network name → pending removal, for which a start waits. */
  readonly #removing = new Map<string, Promise<void>>();
  #timer: NodeJS.Timeout | undefined;

  constructor(engine: Engine, installation: string, rules: BridgeRules, logger: Logger) {
    this.#engine = engine;
    this.#rules = rules;
    this.#installation = installation;
    this.#logger = logger;
  }

  /**
   * Returns the tenant's network. The network exists until the lease is released or, with a container on it,
   * longer. Fails with `failed_precondition` when the daemon cannot create one.
   */
  async lease(tenant: string): Promise<NetworkLease> {
    const name = this.#nameOf(tenant);
    this.#leases.add(name);
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      this.#leases.add(name, -1);
    };
    try {
      await this.#removing.get(name);
      let making = this.#made.get(name);
      if (making === undefined) {
        making = this.#rules.holdDuring(() => this.#make(tenant, name));
        this.#made.set(name, making);
        making.catch(() => this.#made.delete(name));
      }
      await making;
      return { name, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Forgets the tenant's network, which another program has removed. */
  forget(tenant: string): void {
    this.#made.delete(this.#nameOf(tenant));
  }

  /** Schedules the removal of unused networks, after a container was removed. */
  removeUnusedSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.removeUnused().catch(error => this.#logger.warn({ err: error }, 'cannot remove docker networks'));
    }, KEEP_MS).unref();
  }

  /** Removes networks of this installation that have no containers. */
  async removeUnused(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const filters = { label: [`${LABEL_INSTALLATION}=${this.#installation}`] };
    const networks = await this.#engine.request('list networks', docker => docker.listNetworks({ filters }));
    if (networks.length === 0) return;
    // The end of the hold removes rules that no bridge needs any more.
    await this.#rules.holdDuring(() => this.#removeAll(networks));
  }

  async #removeAll(networks: readonly { readonly Id: string; readonly Name: string }[]): Promise<void> {
    await Promise.all(
      networks.map(async ({ Id: id, Name: name }) => {
        // A removal that began before the last container ended may have left the network in place.
        while (this.#removing.has(name)) await this.#removing.get(name);
        if (this.#leases.has(name)) return;
        const removing = this.#remove(id, name).finally(() => this.#removing.delete(name));
        this.#removing.set(
          name,
          removing.catch(() => undefined),
        );
        await removing;
      }),
    );
  }

  async #remove(id: string, name: string): Promise<void> {
    let refused: unknown;
    const isGone = await poll(REMOVE_TRIES, REMOVE_PAUSE_MS, async () => {
      try {
        await this.#engine.request('remove a network', docker => docker.getNetwork(id).remove());
        return true;
      } catch (error) {
        const status = statusOf(error);
        if (status === 404) return true;
        // 500: the host's firewall or bridge is busy with another request.
        if (status !== 403 && status !== 500) throw error;
        refused = error;
        // 403: containers use the network, or a container that was just removed still counts.
        return status === 403 && (await this.#hasContainers(id)) ? false : undefined;
      }
    });
    if (isGone === undefined) throw refused;
    if (isGone) this.#made.delete(name);
  }

  async #hasContainers(id: string): Promise<boolean> {
    try {
      const look = 'look at a network';
      const { Containers: containers } = await this.#engine.request(look, docker => docker.getNetwork(id).inspect());
      const isThere = await Promise.all(Object.keys(containers ?? {}).map(container => this.#isThere(container)));
      return isThere.includes(true);
    } catch (error) {
      if (statusOf(error) === 404) return false;
      throw error;
    }
  }

  /** Returns true if the container exists. A network lists a container for a moment after its removal. */
  async #isThere(container: string): Promise<boolean> {
    try {
      const look = 'look at a container of a network';
      const { State: state } = await this.#engine.request(look, docker => docker.getContainer(container).inspect());
      return state.Status !== 'removing' && state.Status !== 'dead';
    } catch (error) {
      if (statusOf(error) === 404) return false;
      throw error;
    }
  }

  #nameOf(tenant: string): string {
    const hash = createHash('sha256').update(tenant).digest('hex').slice(0, 12);
    return `rookery-${this.#installation.slice(0, 8)}-b${hash}`;
  }

  async #make(tenant: string, name: string): Promise<void> {
    try {
      await this.#engine.request('find a network', docker => docker.getNetwork(name).inspect());
      return;
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    try {
      await this.#engine.request('make a network', docker =>
        docker.createNetwork({
          Name: name,
          Driver: 'bridge',
          CheckDuplicate: true,
          EnableIPv6: false,
          Options: {
            'com.docker.network.bridge.enable_icc': 'false',
            'com.docker.network.bridge.name': bridgesOf(this.#installation) + name.slice(-8),
          },
          Labels: { [LABEL_INSTALLATION]: this.#installation, [LABEL_TENANT]: tenant },
        }),
      );
    } catch (error) {
      // 409: a concurrent request created the network.
      if (statusOf(error) === 409) return;
      if (statusOf(error) === null) throw error;
      const bound = 'the default-address-pools of the daemon bound how many there can be';
      throw failedPrecondition(
        `docker could not make the network of tenant ${tenant}: ${daemonMessage(error)} (${bound})`,
        { cause: error },
      );
    }
  }
}
