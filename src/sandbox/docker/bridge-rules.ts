import { messageOf } from '../../core/error.ts';
import type { HostProgram, HostPython } from './host-python.ts';
import { mayEnter } from './reach.ts';

/**
 * The firewall rules of the host for an installation's bridges: no container reaches a sandbox of another kind or what the host keeps for
 * itself, and nobody on the host but root reaches in. Rules that are there stay as long as there is a bridge, whatever becomes of the server
 * (`rookery_zygote/bridge_rules.py`); who holds them while a bridge is made or removed sees to that.
 */
export class BridgeRules {
  readonly #python: HostPython;
  readonly #bridges: string;
  #holders = 0;
  #held: Promise<HostProgram | string> | undefined;
  #letGo: Promise<void> = Promise.resolve();

  /** `bridges`: what their names begin with. */
  constructor(python: HostPython, bridges: string) {
    this.#python = python;
    this.#bridges = bridges;
  }

  /** Why there are none, as a sentence of `doctor` and of every instance; null when there are. */
  async missing(): Promise<string | null> {
    return await this.holdDuring(async held => held);
  }

  /** `body` learns why they could not be made, and runs all the same. */
  async holdDuring<T>(body: (missing: string | null) => Promise<T>): Promise<T> {
    this.#holders += 1;
    this.#held ??= this.#hold();
    const held = await this.#held;
    try {
      return await body(typeof held === 'string' ? held : null);
    } finally {
      this.#holders -= 1;
      if (this.#holders === 0) {
        this.#held = undefined;
        if (typeof held !== 'string') {
          held.letGo();
          this.#letGo = held.ended;
        }
      }
    }
  }

  /** When nobody holds them: returns once rules that are not needed have gone. */
  async settled(): Promise<void> {
    await this.#letGo;
  }

  async #hold(): Promise<HostProgram | string> {
    if (!mayEnter()) return sentence('this server is not root');
    let program: HostProgram | undefined;
    try {
      program = await this.#python.start('bridge_rules', { isDetached: false });
      await program.order({ bridges: this.#bridges });
      return program;
    } catch (error) {
      program?.letGo();
      return sentence(messageOf(error));
    }
  }
}

function sentence(reason: string): string {
  return `no firewall rules can be made for containers (${reason}): they reach link-local addresses (the metadata of a cloud) as this machine does, and sandboxes of services without such rules reach them`;
}
