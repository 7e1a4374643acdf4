import { META_CODES } from '../core/codes.ts';
import { alreadyExists, failedPrecondition, invalidRequest, notFound, type ServiceError } from '../core/error.ts';

/** A request that is wrong by itself. */
export function wrongRequest(problems: readonly string[]): ServiceError {
  return invalidRequest(`invalid request: ${problems.join('; ')}`, { number: META_CODES.invalid.code });
}

/** A request that is wrong only because of what is stored. */
export function wrongForStored(problem: string): ServiceError {
  return failedPrecondition(problem, { number: META_CODES.invalid.code });
}

/** `what`: the name of a function, or `<name>:<version>` when only the version is missing. */
export function functionNotFound(what: string): ServiceError {
  return notFound(`function [${what}] is not found. check input parameters`, { number: META_CODES.notFound.code });
}

export function functionExists(): ServiceError {
  return alreadyExists(META_CODES.exists.text, { number: META_CODES.exists.code });
}

export function duplicateVersion(): ServiceError {
  return alreadyExists(META_CODES.duplicateVersion.text, { number: META_CODES.duplicateVersion.code });
}

export function staleRevision(): ServiceError {
  return failedPrecondition(META_CODES.staleRevision.text, { number: META_CODES.staleRevision.code });
}

export function tooManyVersions(most: number): ServiceError {
  return failedPrecondition(`the function has ${most} published versions, and there may be no more: delete one first`, {
    number: META_CODES.tooManyVersions.code,
  });
}

export function poolNotFound(): ServiceError {
  return notFound(META_CODES.poolNotFound.text, {
    number: META_CODES.poolNotFound.code,
  });
}
