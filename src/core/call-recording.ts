import { failAtFirst, type JsonObject } from './json.ts';
import { integer, type Kind, refine, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, type ValueOf } from './shape.ts';
import { isFunctionName, parseUrn, QUERIED_NAME_PATTERN } from './urn.ts';

/** The subject of a recording: an agent by its id, or all versions of a function by its name. */
export interface RecordedTarget {
  readonly kind: 'agent' | 'function';
  /** The id of the agent, or `0@<service>@<name>`. */
  readonly target: string;
}

/** A period in which all calls of an agent or function are recorded. */
export interface CallRecording extends RecordedTarget {
  readonly startedAtMs: number;
  readonly endsAtMs: number;
}

/** Returns the name of a function from a name with or without `0@`, or a URN; undefined: neither. */
export function functionNameOf(text: string): string | undefined {
  return parseUrn(text)?.name ?? [text, `0@${text}`].find(isFunctionName);
}

const functionName: Kind<string> = refine(
  text({ required: true }),
  (value, path, problem) => {
    if (functionNameOf(value) === undefined) problem(path, 'must be <service>@<name>, or the URN of a function');
  },
  { pattern: QUERIED_NAME_PATTERN },
);

const FIELDS = {
  agent: maybe(text({ required: true }), 'The `instance_id` of an agent.'),
  function: maybe(functionName, 'A function: `<service>@<name>`, `0@<service>@<name>` or its URN. All its versions.'),
  seconds: optional(integer(LIMITS.recordingSeconds), LIMITS.recordingSeconds.default, 'How long, from now on.'),
};

type Put = ValueOf<typeof FIELDS>;

/** The body that starts or prolongs a recording. */
export const RECORDING_PUT: Kind<Put> = refine(
  object<Put>(FIELDS, { schema: { title: 'CallRecordingPut' } }),
  (value, path, problem) => {
    if ((value.agent === undefined) === (value.function === undefined)) {
      problem(path, 'must have either agent or function');
    }
  },
);

/** Reads the body. Fails with `invalid_request`. */
export function readRecordingPut(body: JsonObject): RecordedTarget & { readonly durationMs: number } {
  const { agent, function: name, seconds } = RECORDING_PUT.read(body, '', failAtFirst) as Put;
  return { ...targetOf(agent, name), durationMs: seconds * 1000 };
}

/** Returns the target of a request that has either an agent or a function. */
export function targetOf(agent: string | undefined, name: string | undefined): RecordedTarget {
  return agent === undefined
    ? { kind: 'function', target: functionNameOf(name ?? '') ?? '' }
    : { kind: 'agent', target: agent };
}
