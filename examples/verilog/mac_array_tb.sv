// Reads the files of gemmsim.export_vectors(..., steps=True) and compares every register after every step.
`timescale 1ns / 1ps

module mac_array_tb;
  parameter M = 4;
  parameter K = 16;
  parameter N = 4;
  parameter A_BITS = 8;
  parameter B_BITS = 8;
  parameter P = 18;
  parameter A_SIGNED = 1;
  parameter B_SIGNED = 1;
  parameter SATURATE = 0;

  reg [A_BITS-1:0] a[0:M*K-1];
  reg [B_BITS-1:0] b[0:K*N-1];
  reg [P-1:0] steps[0:M*N*K-1];
  reg [P-1:0] expected[0:M*N-1];

  reg clk = 0, clear = 1, enable = 0;
  reg [M*A_BITS-1:0] a_column;
  reg [N*B_BITS-1:0] b_row;
  wire [M*N*P-1:0] sums;

  mac_array #(M, N, A_BITS, B_BITS, P, A_SIGNED, B_SIGNED, SATURATE) array (
      .clk(clk),
      .clear(clear),
      .enable(enable),
      .a_column(a_column),
      .b_row(b_row),
      .sums(sums)
  );
  always #5 clk = ~clk;

  reg [8*1024-1:0] folder;
  integer m, n, k, words, errors;

  task compare(input [P-1:0] wanted, input integer at, input integer k);
    begin
      words = words + 1;
      if (sums[at*P+:P] !== wanted) begin
        errors = errors + 1;
        if (errors <= 10)
          $display("element (%0d, %0d), step %0d: %h, expected %h", at / N, at % N, k, sums[at*P+:P], wanted);
      end
    end
  endtask

  initial begin
    words = 0;
    errors = 0;
    if (!$value$plusargs("FOLDER=%s", folder)) begin
      $display("no +FOLDER=PATH of exported vectors");
      $fatal;
    end
    $readmemh($sformatf("%0s/a.hex", folder), a);
    $readmemh($sformatf("%0s/b.hex", folder), b);
    $readmemh($sformatf("%0s/steps.hex", folder), steps);
    $readmemh($sformatf("%0s/expected.hex", folder), expected);

    @(negedge clk);
    clear  = 0;
    enable = 1;
    for (k = 0; k < K; k = k + 1) begin
      for (m = 0; m < M; m = m + 1) a_column[m*A_BITS+:A_BITS] = a[m*K+k];
      for (n = 0; n < N; n = n + 1) b_row[n*B_BITS+:B_BITS] = b[k*N+n];
      @(negedge clk);
      for (m = 0; m < M * N; m = m + 1) compare(steps[m*K+k], m, k);
    end
    enable = 0;
    @(negedge clk);
    for (m = 0; m < M * N; m = m + 1) compare(expected[m], m, K);

    if (errors == 0) $display("PASS: %0d words", words);
    else begin
      $display("FAIL: %0d of %0d words", errors, words);
      $fatal;
    end
    $finish;
  end
endmodule
