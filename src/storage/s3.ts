import type { S3Client } from '@aws-sdk/client-s3';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../core/error.ts';

export interface S3Account {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

const CONNECT_TIMEOUT_MS = 5_000;
export const S3_REQUEST_TIMEOUT_MS = 120_000;

/** A client of an S3 server; the library is loaded with the first one. The caller destroys it. */
export async function openS3({ endpoint, region, ...credentials }: S3Account): Promise<S3Client> {
  const { S3Client } = await import('@aws-sdk/client-s3');
  return new S3Client({
    endpoint,
    region,
    // Path style works on every server; virtual hosts need DNS that a private one does not have.
    forcePathStyle: true,
    credentials,
    maxAttempts: 3,
    // Callers compute their own checksum; not every server knows those that the library would add.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // The error has all details; the library would write to the console too.
    logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, requestTimeout: S3_REQUEST_TIMEOUT_MS },
  });
}

function ignore(): void {}

/** `unavailable` when the server does not answer, or cannot; `failed_precondition` when it refuses. */
export function s3Failure(what: string, error: unknown): ServiceError {
  const status = statusOf(error);
  const text = `${what}: ${messageOf(error)}`;
  return status !== undefined && status < 500
    ? failedPrecondition(text, { cause: error })
    : unavailable(text, { cause: error });
}

export function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
}
