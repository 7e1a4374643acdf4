import { USER_CODES } from '../core/codes.ts';
import { LIMITS } from '../core/limits.ts';
import { exceededBound, isJson } from '../lib/json-bytes.ts';
import type { CallOutcome, StateSaver } from './call.ts';
import { ProtocolError, SAVE_HEAD_BYTES } from './decoder.ts';
import type { OpenCall } from './open-calls.ts';

/** Decoded SAVE; `refused`: why it is not saved, as the end of a sentence. */
type Save = { readonly state: string } | { readonly refused: string };

const OPEN_OBJECT = 0x7b;
const CUT_OFF = 'instance exited: a call ended without its change of the state; the state is the last saved one';

/** Decodes a SAVE. Its state must be one JSON object, which is stored and sent to the runtime unchanged. */
export function decodeSave(payload: Buffer): Save {
  if (payload[0] !== 0 || payload.readUInt32BE(1) !== 0) throw new ProtocolError('SAVE with unknown flags or alarms');
  const state = payload.subarray(SAVE_HEAD_BYTES);
  if (state[0] !== OPEN_OBJECT) throw new ProtocolError('the state of a SAVE must be a JSON object');
  if (isJson(state, LIMITS.stateLevels)) return { state: state.toString() };
  const refused = exceededBound(state, LIMITS.stateLevels);
  if (refused === undefined) throw new ProtocolError('the state of a SAVE is not JSON');
  return { refused };
}

/**
 * The saves of a channel to a durable agent. The answer of a call waits until its state and all earlier ones
 * are on disk, so that no answer reveals what a crash would undo.
 */
export class ChannelSaves {
  readonly #saver: StateSaver;
  readonly #sendSaved: (version: number) => void;
  /** Saves of calls whose RESULT has not arrived. */
  readonly #open = new Map<number, Save>();

  constructor(saver: StateSaver, sendSaved: (version: number) => void) {
    this.#saver = saver;
    this.#sendSaved = sendSaved;
  }

  /** Takes a SAVE. `isAbandoned`: the caller was told that the call failed. */
  receive(callId: number, payload: Buffer, isAbandoned: boolean): void {
    const save = decodeSave(payload);
    if (isAbandoned) this.#saver.reset(CUT_OFF);
    else if (callId === 0) this.#saveNow(save);
    else if (this.#open.has(callId)) throw new ProtocolError('two SAVEs for one call');
    else this.#open.set(callId, save);
  }

  /** Answers a call when everything that its outcome may reveal is on disk. */
  complete(call: OpenCall, outcome: CallOutcome): void {
    const save = this.#open.get(call.id);
    this.#open.delete(call.id);
    if (outcome.ok) this.#saver.succeeded();
    if (save !== undefined && !outcome.ok) {
      this.#saver.reset(CUT_OFF);
      call.complete(outcome);
    } else if (save !== undefined && 'refused' in save) {
      this.#saver.reset(CUT_OFF);
      call.complete({ ...refusal(save.refused), runMicros: outcome.runMicros });
    } else {
      const saved = save === undefined ? this.#saver.pending : this.#saver.save(save.state);
      if (saved === undefined) {
        call.complete(outcome);
        return;
      }
      call.answered();
      saved.then(
        () => call.complete(outcome),
        (error: Error) => call.fail(error),
      );
    }
  }

  #saveNow(save: Save): void {
    if ('refused' in save) {
      this.#saver.reset(`instance exited: ${refusal(save.refused).text}`);
      return;
    }
    const saved = this.#saver.save(save.state);
    const { version } = this.#saver;
    // A failed save ends the sandbox and the connection.
    saved.then(
      () => this.#sendSaved(version),
      () => undefined,
    );
  }
}

function refusal(why: string) {
  return { ok: false, code: USER_CODES.resultNotJson.code, text: `context.state cannot be saved: it ${why}` } as const;
}
