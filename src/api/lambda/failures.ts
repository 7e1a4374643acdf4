import { META_CODES, SERVICE_CODES, USER_CODES } from '../../core/codes.ts';
import { type ErrorCode, ServiceError } from '../../core/error.ts';
import { type ErrorAnswer, retryAfter } from '../../http/answer.ts';
import type { HeaderList } from '../../http/hot/exchange.ts';

/** A refusal in the form of the API of AWS Lambda, whose clients raise an exception named `type`. */
export interface LambdaRefusal {
  readonly status: number;
  readonly type: string;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
}

/** A refusal that no error of the service stands for. */
export class LambdaError extends Error {
  readonly refusal: LambdaRefusal;

  constructor(refusal: LambdaRefusal) {
    super(refusal.message);
    this.refusal = refusal;
  }
}

const BUSY = [429, 'TooManyRequestsException'] as const;

/** Refusals by code. Other codes are failures of the function. */
const REFUSALS: Partial<Readonly<Record<ErrorCode, readonly [status: number, type: string]>>> = {
  invalid_request: [400, 'InvalidParameterValueException'],
  unauthenticated: [403, 'UnrecognizedClientException'],
  permission_denied: [403, 'AccessDeniedException'],
  not_found: [404, 'ResourceNotFoundException'],
  resource_exhausted: BUSY,
};

/**
 * Returns the refusal that an error means. null: the call may have run, and the error is a failure of the
 * function.
 */
export function refusalOf(error: unknown): LambdaRefusal | null {
  if (error instanceof LambdaError) return error.refusal;
  if (!(error instanceof ServiceError)) return null;
  const [status, type] = error.number === SERVICE_CODES.waitedTooLong.code ? BUSY : (REFUSALS[error.code] ?? []);
  if (status === undefined || type === undefined) return null;
  return { status, type, message: error.message, retryAfterSeconds: error.retryAfterSeconds };
}

/** Refusals of changes by the number of the error. */
const CHANGE_REFUSALS: ReadonlyMap<number, readonly [status: number, type: string]> = new Map([
  [META_CODES.exists.code, [409, 'ResourceConflictException']],
  [META_CODES.duplicateVersion.code, [409, 'ResourceConflictException']],
  [META_CODES.staleRevision.code, [412, 'PreconditionFailedException']],
  [META_CODES.tooManyVersions.code, [400, 'CodeStorageExceededException']],
  [META_CODES.invalid.code, [400, 'InvalidParameterValueException']],
  [413, [413, 'RequestTooLargeException']],
]);

/**
 * Returns the refusal that an error of a change or a read of the function `sentName` means. null: the service
 * failed.
 */
export function changeRefusalOf(error: unknown, sentName: string): LambdaRefusal | null {
  if (!(error instanceof ServiceError)) return refusalOf(error);
  if (error.code === 'not_found') {
    return { status: 404, type: 'ResourceNotFoundException', message: `Function not found: ${sentName}` };
  }
  const [status, type] = CHANGE_REFUSALS.get(error.number ?? 0) ?? [];
  if (status === undefined || type === undefined) return refusalOf(error);
  return { status, type, message: error.message };
}

/** Returns the answer of a refusal. Clients read the type from the header, or else from `code`. */
export function refusalAnswer({ status, type, message }: LambdaRefusal): ErrorAnswer {
  return { status, body: { Type: status >= 500 ? 'Service' : 'User', Message: message, message, code: type } };
}

export function refusalHeaders({ status, type, retryAfterSeconds }: LambdaRefusal): HeaderList {
  const retry = status === 429 ? ['Retry-After', retryAfter(retryAfterSeconds)] : [];
  return ['X-Amzn-ErrorType', type, ...retry];
}

/** Maps the errors that the entry itself answers on the routes of Lambda. */
export function lambdaErrors(error: ServiceError): ErrorAnswer {
  return refusalAnswer(refusalOf(error) ?? { status: 500, type: 'ServiceException', message: error.message });
}

/** The error object of a failed function, as Lambda's clients expect it. */
export interface FunctionErrorBody {
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stackTrace?: readonly string[];
}

const HANDLER_TEXT = /^Fail to run user call handler\. err: ([\s\S]*?)\.?$/;
/** An error object in a line of its own, after which only the end of the log may follow. */
const REPORTED = /\n(\{"[^\n]*?\})(?:; it printed last: [\s\S]*)?$/;
/** The name of an exception class at the start of a text. */
const TYPED = /^([A-Za-z_$][\w$.]*)(?:: ([\s\S]*))?$/;
const TYPES: ReadonlyMap<number, string> = new Map([
  [USER_CODES.loadFailed.code, 'Runtime.ImportModuleError'],
  [USER_CODES.handlerFailed.code, 'Error'],
  [USER_CODES.resultTooLarge.code, 'Function.ResponseSizeTooLarge'],
  [USER_CODES.resultNotJson.code, 'Runtime.MarshalError'],
  [USER_CODES.timedOut.code, 'Sandbox.Timedout'],
  [USER_CODES.initializerFailed.code, 'Runtime.InitError'],
  [USER_CODES.initializerTimedOut.code, 'Sandbox.Timedout'],
]);

/** Returns the error object that the runtime `lambda` has added to the text. null: the text has none. */
function reportedError(text: string): FunctionErrorBody | null {
  const line = REPORTED.exec(text)?.[1];
  if (line === undefined) return null;
  try {
    const error = JSON.parse(line) as Partial<FunctionErrorBody>;
    return typeof error.errorType === 'string' && typeof error.errorMessage === 'string'
      ? (error as FunctionErrorBody)
      : null;
  } catch {
    return null;
  }
}

/** Returns the error object of a call that user code failed with `code` and `text`. */
export function functionError(code: number, text: string): FunctionErrorBody {
  const reported = reportedError(text);
  if (reported !== null) return reported;
  const raised = HANDLER_TEXT.exec(text)?.[1] ?? text;
  const [, type, message = ''] = TYPED.exec(raised) ?? [];
  if (code === USER_CODES.handlerFailed.code && type !== undefined) return { errorType: type, errorMessage: message };
  return { errorType: TYPES.get(code) ?? 'Error', errorMessage: raised };
}

/** Returns the error object of a call whose instance ended, did not start, or did not answer in time. */
export function instanceError(error: unknown): FunctionErrorBody {
  const message = error instanceof Error ? error.message : String(error);
  const isLate = error instanceof ServiceError && error.code === 'deadline_exceeded';
  return { errorType: isLate ? 'Sandbox.Timedout' : 'Runtime.ExitError', errorMessage: message };
}
