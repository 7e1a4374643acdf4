import type { S3Client } from '@aws-sdk/client-s3';
import { failedPrecondition, messageOf, PartAway, type ServiceError } from '../core/error.ts';

export interface S3Account {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

const CONNECT_TIMEOUT_MS = 5_000;
export const S3_REQUEST_TIMEOUT_MS = 120_000;

/** Creates a client of an S3 server, and loads the library at the first call. The caller destroys it. */
export async function openS3({ endpoint, region, ...credentials }: S3Account): Promise<S3Client> {
  const { S3Client } = await import('@aws-sdk/client-s3');
  return new S3Client({
    endpoint,
    region,
    // Path style works on every server; virtual hosts need DNS that a private server does not have.
    forcePathStyle: true,
    credentials,
    maxAttempts: 3,
    // Callers compute their own checksum; not every server supports those of the library.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // The error has all details; the library would write to the console too.
    logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, requestTimeout: S3_REQUEST_TIMEOUT_MS },
  });
}

function ignore(): void {}

/**
 * Creates the error of a failed request. `unavailable`: the server does not answer or has an internal error.
 * `failed_precondition`: the server refuses.
 */
export function s3Failure(what: string, error: unknown): ServiceError {
  const status = statusOf(error);
  return status !== undefined && status < 500
    ? failedPrecondition(`${what}: ${messageOf(error)}`, { cause: error })
    : new PartAway(`${what}: the object store does not answer: ${messageOf(error)}`, { cause: error });
}

export function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
}
