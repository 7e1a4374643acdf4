import { messageOf } from '../../core/error.ts';
import { mayEnter } from './container-entry.ts';
import type { HostProgram, HostPython } from './host-python.ts';

/**
 * Manages the host's firewall rules for the bridges of an installation.
 * No container reaches a sandbox of another kind, or addresses that the host keeps for itself. On the host
 * only root reaches containers.
 * Rules stay while a bridge exists, also after the server has ended (`rookery_zygote/bridge_rules.py`). A
 * caller holds the rules while it creates or removes a bridge.
 */
export class BridgeRules {
  readonly #python: HostPython;
  readonly #bridges: string;
  #holders = 0;
  #held: Promise<HostProgram | string> | undefined;
  #released: Promise<void> = Promise.resolve();

  /** `bridges`: the prefix of the bridges' names. */
  constructor(python: HostPython, bridges: string) {
    this.#python = python;
    this.#bridges = bridges;
  }

  /**
   * Returns the reason why the rules cannot be installed, as a sentence for `doctor` and for instance
   * warnings. Null: they are installed.
   */
  async missing(): Promise<string | null> {
    return await this.holdDuring(async held => held);
  }

  /**
   * Holds the rules while `body` runs. If they cannot be installed, `body` gets the reason and still runs.
   */
  async holdDuring<T>(body: (missing: string | null) => Promise<T>): Promise<T> {
    this.#holders += 1;
    this.#held ??= this.#addRules();
    const held = await this.#held;
    try {
      return await body(typeof held === 'string' ? held : null);
    } finally {
      this.#holders -= 1;
      if (this.#holders === 0) {
        this.#held = undefined;
        if (typeof held !== 'string') {
          held.release();
          this.#released = held.ended;
        }
      }
    }
  }

  /**
   * Waits until the last helper has ended and has removed unneeded rules. Call it when no caller holds the
   * rules.
   */
  async released(): Promise<void> {
    await this.#released;
  }

  async #addRules(): Promise<HostProgram | string> {
    if (!mayEnter()) return sentence('this server is not root');
    let program: HostProgram | undefined;
    try {
      program = await this.#python.start('bridge_rules', { isDetached: false });
      await program.order({ bridges: this.#bridges });
      return program;
    } catch (error) {
      program?.release();
      return sentence(messageOf(error));
    }
  }
}

function sentence(reason: string): string {
  return `no firewall rules can be made for containers (${reason}): they reach link-local addresses (the metadata of a cloud) as this machine does, and sandboxes of services without such rules reach them`;
}
