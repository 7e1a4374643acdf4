import { type AlarmChange, readSavedAlarms } from '../core/alarm.ts';
import { USER_CODES } from '../core/codes.ts';
import { messageOf } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { exceededBound, isJson } from '../lib/json-bytes.ts';
import { newRequestId } from '../lib/random-ids.ts';
import type { CallOutcome, StateSaver } from './call.ts';
import { ProtocolError, SAVE_HEAD_BYTES } from './decoder.ts';
import { encodeFrame, encodeMessage, type Frame } from './frames.ts';
import type { OpenCall } from './open-calls.ts';
import { type AlarmList, FRAME } from './protocol.ts';

/** Decoded SAVE; `refused`: why it is not saved, as a sentence. */
type Save = { readonly state: string; readonly alarms: readonly AlarmChange[] } | { readonly refused: string };

const OPEN_OBJECT = 0x7b;
const CUT_OFF = 'instance exited: a call ended without its change of the state; the state is the last saved one';

/** Most unanswered ALARMS. */
const MOST_LISTS = 64;

/** Returns true for the frames that only the runtime of a durable agent sends, beside its answers. */
export function isOfState(type: number, callId: number): boolean {
  return type === FRAME.SAVE || (callId === 0 && (type === FRAME.KEEP_AWAKE || type === FRAME.ALARMS));
}

/** Decodes a SAVE. Its state must be one JSON object, which is stored and sent to the runtime unchanged. */
export function decodeSave(payload: Buffer): Save {
  if (payload[0] !== 0) throw new ProtocolError('SAVE with unknown flags');
  const stateAt = SAVE_HEAD_BYTES + payload.readUInt32BE(1);
  const state = payload.subarray(stateAt);
  if (state[0] !== OPEN_OBJECT) throw new ProtocolError('the state of a SAVE must be a JSON object');
  if (state.length > LIMITS.stateBytes) throw new ProtocolError('the state of a SAVE is too large');
  if (isJson(state, LIMITS.stateLevels)) {
    const alarms = decodeAlarms(payload.subarray(SAVE_HEAD_BYTES, stateAt));
    return 'refused' in alarms ? alarms : { state: state.toString(), alarms };
  }
  const bound = exceededBound(state, LIMITS.stateLevels);
  if (bound === undefined) throw new ProtocolError('the state of a SAVE is not JSON');
  return { refused: `context.state cannot be saved: it ${bound}` };
}

/** Reads changed alarms. A wrong alarm is a failure of the code, not of its runtime. */
function decodeAlarms(json: Buffer): readonly AlarmChange[] | { readonly refused: string } {
  if (json.length === 0) return [];
  if (!isJson(json)) throw new ProtocolError('the alarms of a SAVE are not JSON');
  try {
    return readSavedAlarms(json.toString(), newRequestId, Date.now());
  } catch (error) {
    return { refused: `an alarm cannot be set: ${messageOf(error).replace('invalid request body: ', '')}` };
  }
}

/**
 * The saves of a channel to a durable agent. The answer of a call waits until its state and all earlier ones
 * are on disk, so that no answer reveals what a crash would undo.
 */
export class ChannelSaves {
  readonly #saver: StateSaver;
  readonly #send: (frame: Buffer) => void;
  /** Saves of calls whose RESULT has not arrived. */
  readonly #open = new Map<number, Save>();
  /** Changes of alarms that the success of an open call saves. */
  readonly #settles = new Map<number, () => readonly AlarmChange[]>();
  /** Unanswered ALARMS. */
  #lists = 0;
  #lastList: Promise<void> = Promise.resolve();

  /** `send` writes to the control connection. */
  constructor(saver: StateSaver, send: (frame: Buffer) => void) {
    this.#saver = saver;
    this.#send = send;
  }

  /** Saves changes of alarms with the success of a call. */
  expect(callId: number, settles: () => readonly AlarmChange[]): void {
    this.#settles.set(callId, settles);
  }

  /** Takes a frame for which `isOfState` is true. `isAbandoned`: the caller was told that the call failed. */
  receive({ type, callId, payload }: Frame, isAbandoned: boolean): void {
    if (type === FRAME.KEEP_AWAKE) {
      this.#saver.keepAwake(payload.readUInt32BE(0));
      return;
    }
    if (type === FRAME.ALARMS) {
      this.#listAlarms(payload);
      return;
    }
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
    const settles = this.#settles.get(call.id);
    if (settles !== undefined) this.#settles.delete(call.id);
    if (outcome.ok) this.#saver.succeeded();
    if (save !== undefined && !outcome.ok) {
      this.#saver.reset(CUT_OFF);
      call.complete(outcome);
    } else if (save !== undefined && 'refused' in save) {
      this.#saver.reset(CUT_OFF);
      call.complete({ ...refusal(save.refused), runMicros: outcome.runMicros });
    } else {
      const settled = outcome.ok ? (settles?.() ?? []) : [];
      const hasChanged = save !== undefined || settled.length > 0;
      // What the call has set comes last: it may have set its own alarm again.
      const alarms = [...settled, ...(save?.alarms ?? [])];
      const saved = hasChanged ? this.#saver.save(save?.state ?? null, alarms) : this.#saver.pending;
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

  /** Answers an ALARMS after all earlier ones. */
  #listAlarms(payload: Buffer): void {
    if (this.#lists >= MOST_LISTS) throw new ProtocolError(`more than ${MOST_LISTS} unanswered ALARMS`);
    const decoded = decodeAlarms(payload);
    const list = 'refused' in decoded ? Promise.reject(new Error(decoded.refused)) : this.#saver.listAlarms(decoded);
    const answer = list.then(
      json => `{"alarms":${json}}`,
      (error: unknown) => JSON.stringify({ error: messageOf(error) } satisfies AlarmList),
    );
    this.#lists += 1;
    this.#lastList = this.#lastList.then(async () => {
      const json = await answer;
      this.#lists -= 1;
      this.#send(encodeFrame(FRAME.ALARM_LIST, 0, json));
    });
  }

  #saveNow(save: Save): void {
    if ('refused' in save) {
      this.#saver.reset(`instance exited: ${refusal(save.refused).text}`);
      return;
    }
    const saved = this.#saver.save(save.state, save.alarms);
    const { version } = this.#saver;
    // A failed save ends the sandbox and the connection.
    saved.then(
      () => this.#send(encodeMessage(FRAME.SAVED, { version })),
      () => undefined,
    );
  }
}

function refusal(why: string) {
  return { ok: false, code: USER_CODES.resultNotJson.code, text: why } as const;
}
