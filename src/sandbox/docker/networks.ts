import { createHash } from 'node:crypto';
import { failedPrecondition } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { BridgeRules } from './bridge-rules.ts';
import { daemonMessage, type Engine, statusOf } from './engine.ts';
import { LABEL_INSTALLATION, LABEL_TENANT } from './labels.ts';

/** How long a network without containers is kept: the next create of its tenant then has not to wait for one. */
const KEEP_MS = 30_000;
/**
 * How often, and after which pause, one that seems to be in use by nobody is tried to be removed again. A busy daemon may count wrong for good
 * (moby/moby#42119): it lets go of such a network only after its own next start.
 */
const REMOVE_TRIES = 20;
const REMOVE_PAUSE_MS = 100;

/** A network in use by a start that is under way. */
export interface NetworkLease {
  readonly name: string;
  release(): void;
}

/** Of the host's interfaces that lead to containers (`network_rules.py`): 15 characters at most. */
const BRIDGE_BEGINNING = 'rkb';

/** The beginning of the names of an installation's bridges on the host. */
export function bridgesOf(installation: string): string {
  return BRIDGE_BEGINNING + installation.slice(0, 4);
}

/**
 * One bridge network per tenant: containers of different tenants are on different ones, and on each of them no container
 * reaches another. They are made when they are needed and removed a while after.
 */
export class TenantNetworks {
  readonly #engine: Engine;
  readonly #installation: string;
  readonly #logger: Logger;
  readonly #rules: BridgeRules;
  /** By name; made or being made. */
  readonly #made = new Map<string, Promise<void>>();
  /** Starts under way, by name: a container that is not running yet does not keep its network. */
  readonly #leases = new Map<string, number>();
  /** Removals under way, by name: a start waits for them. */
  readonly #removing = new Map<string, Promise<void>>();
  #timer: NodeJS.Timeout | undefined;

  constructor(engine: Engine, installation: string, rules: BridgeRules, logger: Logger) {
    this.#engine = engine;
    this.#rules = rules;
    this.#installation = installation;
    this.#logger = logger;
  }

  /** The tenant's network, there until the lease is released or a container runs on it. Fails with `failed_precondition` when none can be made. */
  async lease(tenant: string): Promise<NetworkLease> {
    const name = this.#nameOf(tenant);
    this.#leases.set(name, (this.#leases.get(name) ?? 0) + 1);
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#leases.get(name) ?? 1) - 1;
      if (left === 0) this.#leases.delete(name);
      else this.#leases.set(name, left);
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

  /** The tenant's network is gone: somebody else has removed it. */
  forget(tenant: string): void {
    this.#made.delete(this.#nameOf(tenant));
  }

  /** A container has gone: in a while, networks without any go too. */
  removeUnusedSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.removeUnused().catch(error => this.#logger.warn({ err: error }, 'networks of docker could not be removed'));
    }, KEEP_MS).unref();
  }

  /** Removes networks of ours without containers. */
  async removeUnused(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const filters = { label: [`${LABEL_INSTALLATION}=${this.#installation}`] };
    const networks = await this.#engine.request('list networks', docker => docker.listNetworks({ filters }));
    if (networks.length === 0) return;
    // Its end is where rules go that no bridge needs any more.
    await this.#rules.holdDuring(() => this.#removeAll(networks));
  }

  async #removeAll(networks: readonly { readonly Id: string; readonly Name: string }[]): Promise<void> {
    await Promise.all(
      networks.map(async ({ Id: id, Name: name }) => {
        // One that began before the last container had gone may leave the network there.
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
        // The host's firewall or bridge is busy with somebody else's.
        if (status !== 403 && status !== 500) throw error;
        refused = error;
        // In use: by containers, or for a moment more by one that has just been removed.
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

  /** A network names a container for a moment more than it is there. */
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
      // 409: made by somebody else meanwhile.
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
