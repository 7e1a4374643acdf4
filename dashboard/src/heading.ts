/** A row of a table that only divides the rows. */
export class Heading {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}
