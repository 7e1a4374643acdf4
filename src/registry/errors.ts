import { META_CODES } from '../core/codes.ts';
import { alreadyExists, failedPrecondition, invalidRequest, notFound, type ServiceError } from '../core/error.ts';
import { LATEST } from '../core/urn.ts';

/** Returns the error of a request that is wrong by itself. */
export function wrongRequest(problems: readonly string[]): ServiceError {
  return invalidRequest(`invalid request: ${problems.join('; ')}`, { number: META_CODES.invalid.code });
}

/** Returns the error of a request that is wrong only because of stored records. */
export function wrongForStored(problem: string): ServiceError {
  return failedPrecondition(problem, { number: META_CODES.invalid.code });
}

/** Returns the error of an unknown function. `what`: its name, as the client wrote it. */
export function functionNotFound(what: string): ServiceError {
  return notFound(`function [${what}] is not found. check input parameters`, { number: META_CODES.notFound.code });
}

/** Returns the error of an unknown version of an existing function. `versions`: its published versions. */
export function versionNotFound(name: string, version: string, versions: readonly string[]): ServiceError {
  return notFound(`function [${name}:${version}] is not found. check input parameters`, {
    number: META_CODES.notFound.code,
    advice: `The versions of ${name} are ${[LATEST, ...versions.toSorted()].join(', ')}.`,
  });
}

export function functionExists(name: string): ServiceError {
  return alreadyExists(META_CODES.exists.text, {
    number: META_CODES.exists.code,
    advice: `Register it under another name, change it (PUT /serverless/v1/functions/${name}), or delete it first (DELETE of the same path).`,
  });
}

export function duplicateVersion(name: string): ServiceError {
  return alreadyExists(META_CODES.duplicateVersion.text, {
    number: META_CODES.duplicateVersion.code,
    advice: `A published version never changes: publish under another versionNumber, or delete that version first (DELETE /serverless/v1/functions/${name}?versionNumber=…). Without a versionNumber, wait more than a second between two publishes.`,
  });
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
