import { Readable } from 'node:stream';
import type { CodePackages, Unpacker } from '../../code/code-packages.ts';
import { codeUrl } from '../../core/code-package.ts';
import { ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { invalidValue } from './configuration.ts';
import { LambdaError } from './failures.ts';
import type { CodeRequest } from './requests.ts';
import { sha256Of, slicesOf } from './slices.ts';

export interface CodeUploadsOptions {
  readonly packages: Pick<CodePackages, 'put'>;
  readonly unpacker: Unpacker;
}

/** A zip in Base64, and space for the other fields. */
export const CODE_BODY_BYTES = Math.ceil((LIMITS.lambdaZipBytes * 4) / 3) + LIMITS.requestBodyBytes;
/** Uploads of one replica at a time. Each holds its zip in memory. */
const MAX_OPEN = 4;
const NO_BYTES = Buffer.alloc(0);

/** Stores the code that clients of AWS Lambda send as code packages. */
export class CodeUploads {
  readonly #options: CodeUploadsOptions;
  #open = 0;

  constructor(options: CodeUploadsOptions) {
    this.#options = options;
  }

  /** Returns the `codePath` of the code in a request, without storing it. Fails if the request has no zip. */
  async pathOf({ ZipFile, S3Bucket, ImageUri }: CodeRequest): Promise<string> {
    if (S3Bucket !== '') {
      throw invalidValue('code in S3 is not supported here: send the zip as ZipFile, or register with storageType s3');
    }
    if (ImageUri !== '') {
      throw invalidValue('images are not supported here: send a zip as ZipFile, or register with rootfs.imageurl');
    }
    if (ZipFile === null) throw invalidValue('ZipFile is required: the code as a zip');
    if (ZipFile.length > LIMITS.lambdaZipBytes) throw tooLarge();
    return codeUrl(await sha256Of(ZipFile));
  }

  /** Stores the zip of a request, whose path `pathOf` returned. */
  async store(tenant: string, codePath: string, { ZipFile }: CodeRequest): Promise<void> {
    if (this.#open >= MAX_OPEN) {
      throw new LambdaError({
        ...{ status: 429, type: 'TooManyRequestsException', retryAfterSeconds: 1 },
        message: `${MAX_OPEN} uploads of code are running on this replica: try again later`,
      });
    }
    this.#open += 1;
    try {
      const { packages, unpacker } = this.#options;
      await packages.put(
        tenant,
        codePath.slice(codeUrl('').length),
        Readable.from(slicesOf(ZipFile ?? NO_BYTES)),
        unpacker,
      );
    } catch (error) {
      throw asRefusal(error);
    } finally {
      this.#open -= 1;
    }
  }
}

function asRefusal(error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.number !== undefined) return error;
  const { code, message } = error;
  if (code === 'resource_exhausted') {
    return new LambdaError({ status: 400, type: 'CodeStorageExceededException', message });
  }
  return code === 'invalid_request' ? invalidValue(`Could not unzip uploaded file: ${message}`) : error;
}

function tooLarge(): LambdaError {
  return new LambdaError({
    ...{ status: 413, type: 'RequestTooLargeException' },
    message: `ZipFile is larger than ${LIMITS.lambdaZipBytes} bytes: upload larger code with rookery deploy`,
  });
}
